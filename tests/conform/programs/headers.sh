# Every constant of PVM's headers has the same value in ours, and every structure the same size. What PVM's
# daemons send to one another is not compared.
#@ nodaemon
#@ needs $DEBIAN_PVM/include/pvm3.h
#@ needs $DEBIAN_PVM/include/pvmproto.h
headers="-include pvm3.h -include pvmproto.h -include pvmtev.h"
cc -dM -E $headers -I$DEBIAN_PVM/include -xc /dev/null |
    sed -n -E 's/^#define ((Pvm|PVM|TEV_|T[MC]_|[DS]M_|SYSCTX)[A-Za-z0-9_]*) .+/\1/p' |
    grep -v -E '^(PVM_PATCH|PVM_VER|DM_SLCONF_|PVMD)' | sort > names
cat > show.c <<'C'
#include <stdio.h>
#include <sys/time.h>
#define SHOW(x)                                                                                    \
    _Generic((x), char *: shown_text(#x, (const char *)(size_t)(x)), default: shown(#x, (long)(size_t)(x)))
static void shown(const char *name, long value)
{
    printf("%s %ld\n", name, value);
}
static void shown_text(const char *name, const char *text)
{
    printf("%s %s\n", name, text);
}
int main(void)
{
C
sed 's/.*/SHOW(&);/' names >> show.c
for name in pvmhostinfo pvmtaskinfo pvmminfo pvmmboxinfo; do
    echo "SHOW(sizeof(struct $name));" >> show.c
done
echo 'return 0; }' >> show.c
cc -w $headers -I"$CONFORM_INCLUDE" -o show show.c && ./show
