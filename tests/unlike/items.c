/* Makes items of every type: numbers at the limits of the type, the same on every host. */
#include "unlike.h"

const struct type_info types[TYPES] = {
    {"byte", PVM_BYTE, 1, 1},
    {"short", PVM_SHORT, sizeof(short), 1},
    {"int", PVM_INT, sizeof(int), 1},
    {"float", PVM_FLOAT, sizeof(float), 1},
    {"cplx", PVM_CPLX, 2 * sizeof(float), 2},
    {"double", PVM_DOUBLE, sizeof(double), 1},
    {"dcplx", PVM_DCPLX, 2 * sizeof(double), 2},
    {"long", PVM_LONG, sizeof(long), 1},
    {"ushort", PVM_USHORT, sizeof(short), 1},
    {"uint", PVM_UINT, sizeof(int), 1},
    {"ulong", PVM_ULONG, sizeof(long), 1},
};

static const char bytes[ITEMS] = {0, 1, 127, -128, -1, 65};
static const short shorts[ITEMS] = {0, -1, 32767, -32768, 0x1234, -2};
static const unsigned short unsigned_shorts[ITEMS] = {0, 1, 65535, 32768, 0x1234, 255};
static const int ints[ITEMS] = {0, -1, 2147483647, -2147483647 - 1, 0x12345678, -2};
static const unsigned unsigned_ints[ITEMS] = {0, 1, 4294967295u, 2147483648u, 0x12345678, 255};
static const long longs[ITEMS] = {0, -1, 2147483647L, -2147483647L - 1, 0x12345678, -2};
static const unsigned long unsigned_longs[ITEMS] = {0, 1, 4294967295ul, 2147483648ul, 0x12345678, 255};
/* The bits of floats: one, minus zero, the smallest denormal, a NaN with a payload, minus infinity, and a
 * number whose bytes all differ. There is one value for each part of a complex number. */
static const uint32_t floats[2 * ITEMS] = {0x3f800000, 0x80000000, 0x00000001, 0x7fc12345, 0xff800000, 0x42c80123,
                                           0x007fffff, 0x7f7fffff, 0xffe00001, 0x00800000, 0x7f800000, 0xc0490fdb};
static const uint64_t doubles[2 * ITEMS] = {
    0x3ff0000000000000u, 0x8000000000000000u, 0x0000000000000001u, 0x7ff8123456789abcu, 0xfff0000000000000u,
    0x400921fb54442d18u, 0x000fffffffffffffu, 0x7fefffffffffffffu, 0xfffc000000000001u, 0x0010000000000000u,
    0x7ff0000000000000u, 0xc12345678abcdef0u};

void make_items(int type, void *items)
{
    switch (type) {
    case T_BYTE: memcpy(items, bytes, sizeof bytes); break;
    case T_SHORT: memcpy(items, shorts, sizeof shorts); break;
    case T_USHORT: memcpy(items, unsigned_shorts, sizeof unsigned_shorts); break;
    case T_INT: memcpy(items, ints, sizeof ints); break;
    case T_UINT: memcpy(items, unsigned_ints, sizeof unsigned_ints); break;
    case T_LONG: memcpy(items, longs, sizeof longs); break;
    case T_ULONG: memcpy(items, unsigned_longs, sizeof unsigned_longs); break;
    case T_FLOAT: memcpy(items, floats, sizeof floats / 2); break;
    case T_DOUBLE: memcpy(items, doubles, sizeof doubles / 2); break;
    case T_CPLX: memcpy(items, floats, sizeof floats); break;
    case T_DCPLX: memcpy(items, doubles, sizeof doubles); break;
    }
}

void make_large(int type, void *items, int maker_long_bytes)
{
    /* A host with a 32-bit long does not have these values. */
    int64_t large[ITEMS] = {-5, 2147483647, (int64_t)0x123456789abcdef0, INT64_MIN, -2147483649LL, INT64_MAX};
    uint64_t unsigned_large[ITEMS] = {5, 4294967295u, 0x123456789abcdef0u, UINT64_MAX, 4294967296u, 1};
    long *place = items;
    unsigned long *unsigned_place = items;
    int i;
    for (i = 0; i < ITEMS; i++) {
        int large_too = maker_long_bytes == 8 || i < LARGE_FIRST;
        if (type == T_LONG)
            place[i] = large_too ? (long)large[i] : -i;
        else
            unsigned_place[i] = large_too ? (unsigned long)unsigned_large[i] : (unsigned long)i;
    }
}

int pack_items(int type, void *items, int count, int stride)
{
    switch (type) {
    case T_BYTE: return pvm_pkbyte(items, count, stride);
    case T_SHORT: return pvm_pkshort(items, count, stride);
    case T_USHORT: return pvm_pkushort(items, count, stride);
    case T_INT: return pvm_pkint(items, count, stride);
    case T_UINT: return pvm_pkuint(items, count, stride);
    case T_LONG: return pvm_pklong(items, count, stride);
    case T_ULONG: return pvm_pkulong(items, count, stride);
    case T_FLOAT: return pvm_pkfloat(items, count, stride);
    case T_DOUBLE: return pvm_pkdouble(items, count, stride);
    case T_CPLX: return pvm_pkcplx(items, count, stride);
    default: return pvm_pkdcplx(items, count, stride);
    }
}

int unpack_items(int type, void *items, int count, int stride)
{
    switch (type) {
    case T_BYTE: return pvm_upkbyte(items, count, stride);
    case T_SHORT: return pvm_upkshort(items, count, stride);
    case T_USHORT: return pvm_upkushort(items, count, stride);
    case T_INT: return pvm_upkint(items, count, stride);
    case T_UINT: return pvm_upkuint(items, count, stride);
    case T_LONG: return pvm_upklong(items, count, stride);
    case T_ULONG: return pvm_upkulong(items, count, stride);
    case T_FLOAT: return pvm_upkfloat(items, count, stride);
    case T_DOUBLE: return pvm_upkdouble(items, count, stride);
    case T_CPLX: return pvm_upkcplx(items, count, stride);
    default: return pvm_upkdcplx(items, count, stride);
    }
}
