/* fmp.h: FMP (Fast Message Passing) by itself: messages between tasks of a virtual machine, as bytes from memory to
 * memory. Link with -lfmp. The manual begins at fmp_send(3). */
#ifndef FMP_H
#define FMP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Any sender, any tag. */
#define FMP_ANY (-1)

/* Error codes. Every function that fails returns one of them. */
#define FMP_EINVAL (-1)     /* a parameter is wrong */
#define FMP_ENOMEM (-2)     /* no memory for the message, or no file descriptor for the connection */
#define FMP_ENOMACHINE (-3) /* no virtual machine: no daemon runs, or it has ended */
#define FMP_ETRUNC (-4)     /* the message is longer than the memory for it; it was not received */
#define FMP_EMSGSIZE (-5)   /* the message is longer than FMP_LENGTH_MAX */
#define FMP_ENOPARENT (-6)  /* no task has started this task */
#define FMP_EBUSY (-7)      /* the call was made inside another call */

/* The longest message, in bytes. */
#define FMP_LENGTH_MAX 2147483647

/* A message that has arrived. */
typedef struct fmp_info {
    int source;    /* the address of the sender */
    int tag;       /* its tag */
    size_t length; /* its length in bytes */
} fmp_info;

/* Addresses. The address of a task is its tid. */
int fmp_self(void);
int fmp_parent(void);
int fmp_siblings(int *addresses, size_t room);

/* Messages. */
int fmp_send(int destination, int tag, const void *data, size_t length);
int fmp_receive(int source, int tag, void *data, size_t size, fmp_info *info);
int fmp_probe_local(int source, int tag, fmp_info *info);
int fmp_probe_network(int source, int tag, fmp_info *info);

const char *fmp_strerror(int code);

#ifdef __cplusplus
}
#endif

#endif
