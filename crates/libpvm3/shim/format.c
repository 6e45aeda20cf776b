/*
 * pvm_packf and pvm_unpackf: the functions of PVM with variable arguments.
 *
 * A format is a sequence of items: '%' [count] ['.' stride] {h|l|u} letter. Count and stride are digits or '*' (an int
 * argument). Other characters between items are ignored. When packing, "%+" may be the first item: it takes an encoding
 * and begins a new message.
 */
#include <limits.h>
#include <stdarg.h>

#define EXPORTED __attribute__((visibility("default")))

#define BAD_PARAMETER (-2)

/* Numbers of the data types, as in pvm3.h. */
enum kind {
    KIND_STRING = 0, KIND_BYTE = 1, KIND_SHORT = 2, KIND_INT = 3, KIND_FLOAT = 4, KIND_CPLX = 5,
    KIND_DOUBLE = 6, KIND_DCPLX = 7, KIND_LONG = 8, KIND_USHORT = 9, KIND_UINT = 10, KIND_ULONG = 11
};

int pvm_initsend(int encoding);
/* Written in Rust; they return a code and print nothing. */
int hpvm_shim_pack(int kind, const void *items, int count, int stride);
int hpvm_shim_unpack(int kind, void *items, int count, int stride);
int hpvm_shim_pack_string(const char *text);
int hpvm_shim_unpack_string(char *text);
/* Calls `work`, and traces the call. */
int hpvm_shim_traced(int packs, const char *format, int (*work)(void *), void *call);
/* Sets pvm_errno and prints the failure of the named function; returns the code. */
int hpvm_shim_failed(const char *function, int code);

EXPORTED int pvm_vpackf(const char *format, va_list arguments);
EXPORTED int pvm_vunpackf(const char *format, va_list arguments);
EXPORTED int pvm_packf(const char *format, ...);
EXPORTED int pvm_unpackf(const char *format, ...);

/* A va_list in a struct, so that functions can pass it by pointer and the caller sees which arguments were
 * read. */
struct arguments {
    va_list list;
};

struct item {
    int count;
    int stride;
    int by_value; /* neither count nor stride was given */
    int is_short;
    int is_long;
    int is_unsigned;
    char letter;
};

static int is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* Reads digits or '*'. */
static const char *read_number(const char *at, struct arguments *arguments, int *number)
{
    int value = 0;

    if (*at == '*') {
        *number = va_arg(arguments->list, int);
        return at + 1;
    }
    for (; is_digit(*at); at++)
        value = value > (INT_MAX - 9) / 10 ? INT_MAX : value * 10 + (*at - '0');
    *number = value;
    return at;
}

/* Reads an item from behind its '%'; returns the end of the item. */
static const char *read_item(const char *at, struct arguments *arguments, struct item *item)
{
    item->count = 1;
    item->stride = 1;
    item->by_value = 1;
    item->is_short = item->is_long = item->is_unsigned = 0;
    if (*at == '*' || is_digit(*at)) {
        at = read_number(at, arguments, &item->count);
        item->by_value = 0;
    }
    if (*at == '.') {
        at = read_number(at + 1, arguments, &item->stride);
        item->by_value = 0;
    }
    for (;; at++) {
        if (*at == 'h')
            item->is_short = 1;
        else if (*at == 'l')
            item->is_long = 1;
        else if (*at == 'u')
            item->is_unsigned = 1;
        else
            break;
    }
    item->letter = *at;
    return *at ? at + 1 : at;
}

/* Returns the data type of an item; a negative code for an unknown letter. */
static int kind_of(const struct item *item)
{
    switch (item->letter) {
    case 'c':
        return KIND_BYTE;
    case 'd':
        if (item->is_long)
            return item->is_unsigned ? KIND_ULONG : KIND_LONG;
        if (item->is_short)
            return item->is_unsigned ? KIND_USHORT : KIND_SHORT;
        return item->is_unsigned ? KIND_UINT : KIND_INT;
    case 'f':
        return item->is_long ? KIND_DOUBLE : KIND_FLOAT;
    case 'x':
        return item->is_long ? KIND_DCPLX : KIND_CPLX;
    case 's':
        return KIND_STRING;
    default:
        return BAD_PARAMETER;
    }
}

/* Packs one item that is passed by value. */
static int pack_value(int kind, struct arguments *arguments)
{
    union {
        char byte;
        short small;
        int plain;
        long large;
        float single;
        double real;
    } value;

    switch (kind) {
    case KIND_BYTE:
        value.byte = (char)va_arg(arguments->list, int);
        break;
    case KIND_SHORT:
    case KIND_USHORT:
        value.small = (short)va_arg(arguments->list, int);
        break;
    case KIND_INT:
    case KIND_UINT:
        value.plain = va_arg(arguments->list, int);
        break;
    case KIND_LONG:
    case KIND_ULONG:
        value.large = va_arg(arguments->list, long);
        break;
    case KIND_FLOAT:
        value.single = (float)va_arg(arguments->list, double);
        break;
    case KIND_DOUBLE:
        value.real = va_arg(arguments->list, double);
        break;
    default: /* complex numbers are always passed by pointer */
        return hpvm_shim_pack(kind, va_arg(arguments->list, void *), 1, 1);
    }
    return hpvm_shim_pack(kind, &value, 1, 1);
}

static int pack_item(const struct item *item, struct arguments *arguments)
{
    int kind = kind_of(item);

    if (kind < 0)
        return kind;
    if (kind == KIND_STRING)
        return hpvm_shim_pack_string(va_arg(arguments->list, char *));
    if (item->by_value)
        return pack_value(kind, arguments);
    return hpvm_shim_pack(kind, va_arg(arguments->list, void *), item->count, item->stride);
}

static int unpack_item(const struct item *item, struct arguments *arguments)
{
    int kind = kind_of(item);

    if (kind < 0)
        return kind;
    if (kind == KIND_STRING)
        return hpvm_shim_unpack_string(va_arg(arguments->list, char *));
    return hpvm_shim_unpack(kind, va_arg(arguments->list, void *), item->count, item->stride);
}

static int pack_format(const char *at, struct arguments *arguments)
{
    struct item item;
    int code = 0;

    if (!at)
        return BAD_PARAMETER;
    if (at[0] == '%' && at[1] == '+') {
        code = pvm_initsend(va_arg(arguments->list, int));
        at += 2;
    }
    while (*at && code >= 0) {
        if (*at++ != '%')
            continue;
        at = read_item(at, arguments, &item);
        code = pack_item(&item, arguments);
    }
    return code < 0 ? code : 0;
}

static int unpack_format(const char *at, struct arguments *arguments)
{
    struct item item;
    int code = 0;

    if (!at)
        return BAD_PARAMETER;
    while (*at && code >= 0) {
        if (*at++ != '%')
            continue;
        at = read_item(at, arguments, &item);
        code = unpack_item(&item, arguments);
    }
    return code < 0 ? code : 0;
}

/* The arguments of a call, for hpvm_shim_traced. */
struct call {
    const char *format;
    struct arguments arguments;
};

static int pack_called(void *place)
{
    struct call *call = place;
    int code = pack_format(call->format, &call->arguments);

    return code < 0 ? hpvm_shim_failed("pvm_packf", code) : code;
}

static int unpack_called(void *place)
{
    struct call *call = place;
    int code = unpack_format(call->format, &call->arguments);

    return code < 0 ? hpvm_shim_failed("pvm_unpackf", code) : code;
}

int pvm_vpackf(const char *format, va_list list)
{
    struct call call;
    int code;

    call.format = format;
    va_copy(call.arguments.list, list);
    code = hpvm_shim_traced(1, format, pack_called, &call);
    va_end(call.arguments.list);
    return code;
}

int pvm_vunpackf(const char *format, va_list list)
{
    struct call call;
    int code;

    call.format = format;
    va_copy(call.arguments.list, list);
    code = hpvm_shim_traced(0, format, unpack_called, &call);
    va_end(call.arguments.list);
    return code;
}

int pvm_packf(const char *format, ...)
{
    va_list list;
    int code;

    va_start(list, format);
    code = pvm_vpackf(format, list);
    va_end(list);
    return code;
}

int pvm_unpackf(const char *format, ...)
{
    va_list list;
    int code;

    va_start(list, format);
    code = pvm_vunpackf(format, list);
    va_end(list);
    return code;
}
