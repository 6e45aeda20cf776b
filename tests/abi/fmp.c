/* A program that knows nothing but fmp.h. Without a virtual machine every call fails, and prints nothing. */
#include <fmp.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define MUST_BE(what, value) extern char JOIN(line_, __LINE__)[(what) == (value) ? 1 : -1];

MUST_BE(offsetof(fmp_info, source), 0)
MUST_BE(offsetof(fmp_info, tag), 4)
MUST_BE(offsetof(fmp_info, length), 8)
MUST_BE(sizeof(fmp_info), 8 + sizeof(size_t))
MUST_BE(FMP_ANY, -1)

int main(void)
{
    char byte = 0;
    int failed = 0;

    failed |= fmp_self() != FMP_ENOMACHINE;
    failed |= fmp_parent() != FMP_ENOMACHINE;
    failed |= fmp_siblings(NULL, 0) != FMP_ENOMACHINE;
    failed |= fmp_send(0x40001, 1, &byte, 1) != FMP_ENOMACHINE;
    failed |= fmp_receive(FMP_ANY, 1, &byte, 1, NULL) != FMP_ENOMACHINE;
    failed |= fmp_probe_local(FMP_ANY, 1, NULL) != FMP_ENOMACHINE;
    failed |= fmp_probe_network(FMP_ANY, 1, NULL) != FMP_ENOMACHINE;
    failed |= *fmp_strerror(FMP_ENOMACHINE) == 0;
    return failed;
}
