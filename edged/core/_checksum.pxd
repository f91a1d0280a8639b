# crc32 with the values of zlib, as _frames.pyx needs it: by tables, eight bytes per step, or, where the
# processor can multiply polynomials, sixteen bytes per multiplication. A state is not inverted: that is done
# once, at the ends. checksum_prepare() comes first.

from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    static uint32_t CHECKSUM_TABLE[8][256];
    static int checksum_can_multiply;

    static inline uint32_t checksum_word(const unsigned char *place) {
        return (uint32_t)place[0] | (uint32_t)place[1] << 8
            | (uint32_t)place[2] << 16 | (uint32_t)place[3] << 24;
    }

    static inline uint32_t checksum_step(uint32_t state, uint32_t low, uint32_t high) {
        low ^= state;
        return CHECKSUM_TABLE[7][low & 0xFF] ^ CHECKSUM_TABLE[6][low >> 8 & 0xFF]
            ^ CHECKSUM_TABLE[5][low >> 16 & 0xFF] ^ CHECKSUM_TABLE[4][low >> 24]
            ^ CHECKSUM_TABLE[3][high & 0xFF] ^ CHECKSUM_TABLE[2][high >> 8 & 0xFF]
            ^ CHECKSUM_TABLE[1][high >> 16 & 0xFF] ^ CHECKSUM_TABLE[0][high >> 24];
    }

    static uint32_t checksum_by_tables(uint32_t state, const unsigned char *data, size_t size) {
        for (; size >= 8; data += 8, size -= 8)
            state = checksum_step(state, checksum_word(data), checksum_word(data + 4));
        for (; size; data++, size--)
            state = state >> 8 ^ CHECKSUM_TABLE[0][(state ^ *data) & 0xFF];
        return state;
    }

    /* Two at a time, of `size` bytes each, a multiple of 8: one waits less for its table lookups. */
    static void checksum_both(
        uint32_t *states, const unsigned char *one, const unsigned char *other, size_t size
    ) {
        uint32_t first = states[0], second = states[1];
        for (size_t at = 0; at < size; at += 8) {
            first = checksum_step(first, checksum_word(one + at), checksum_word(one + at + 4));
            second = checksum_step(second, checksum_word(other + at), checksum_word(other + at + 4));
        }
        states[0] = first;
        states[1] = second;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    /* What 16 bytes come to when they are moved by as many bytes as the factors say, plus what is there. */
    #define CHECKSUM_MOVE(lane, factors, there) _mm_xor_si128(_mm_xor_si128( \\
        _mm_clmulepi64_si128(lane, factors, 0x00), _mm_clmulepi64_si128(lane, factors, 0x11)), there)
    #define CHECKSUM_LOAD(place) _mm_loadu_si128((const __m128i *)(place))

    /* At least 64 bytes: four lanes are moved along, then made one, whose checksum is that of all. */
    __attribute__((target("pclmul,sse2")))
    static uint32_t checksum_by_multiplying(uint32_t state, const unsigned char *data, size_t size) {
        /* x^(8n+32) and x^(8n-32) modulo the polynomial, bits reversed, for n = 64 and n = 16 bytes. */
        const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
        const __m128i by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
        __m128i lane = _mm_xor_si128(CHECKSUM_LOAD(data), _mm_cvtsi32_si128((int)state));
        __m128i second = CHECKSUM_LOAD(data + 16);
        __m128i third = CHECKSUM_LOAD(data + 32);
        __m128i fourth = CHECKSUM_LOAD(data + 48);
        unsigned char rest[16];
        for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
            lane = CHECKSUM_MOVE(lane, by_64, CHECKSUM_LOAD(data));
            second = CHECKSUM_MOVE(second, by_64, CHECKSUM_LOAD(data + 16));
            third = CHECKSUM_MOVE(third, by_64, CHECKSUM_LOAD(data + 32));
            fourth = CHECKSUM_MOVE(fourth, by_64, CHECKSUM_LOAD(data + 48));
        }
        lane = CHECKSUM_MOVE(lane, by_16, second);
        lane = CHECKSUM_MOVE(lane, by_16, third);
        lane = CHECKSUM_MOVE(lane, by_16, fourth);
        for (; size >= 16; data += 16, size -= 16)
            lane = CHECKSUM_MOVE(lane, by_16, CHECKSUM_LOAD(data));
        _mm_storeu_si128((__m128i *)rest, lane);
        return checksum_by_tables(checksum_by_tables(0, rest, 16), data, size);
    }

    static int checksum_is_multiplication_there(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul");
    }
    #else
    #define checksum_by_multiplying checksum_by_tables
    #define checksum_is_multiplication_there() 0
    #endif

    static inline uint32_t checksum_bytes(uint32_t state, const unsigned char *data, size_t size) {
        return checksum_can_multiply && size >= 64 ? checksum_by_multiplying(state, data, size)
                                                   : checksum_by_tables(state, data, size);
    }

    static inline uint32_t checksum_number(uint32_t state, uint64_t number) {
        return checksum_step(state, (uint32_t)number, (uint32_t)(number >> 32));
    }

    static void checksum_prepare(void) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t value = byte;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0xEDB88320U : 0U);
            CHECKSUM_TABLE[0][byte] = value;
        }
        for (int byte = 0; byte < 256; byte++)
            for (int step = 1; step < 8; step++)
                CHECKSUM_TABLE[step][byte] = CHECKSUM_TABLE[step - 1][byte] >> 8
                    ^ CHECKSUM_TABLE[0][CHECKSUM_TABLE[step - 1][byte] & 0xFF];
        checksum_can_multiply = checksum_is_multiplication_there();
    }
    """
    uint32_t checksum_bytes(uint32_t state, const unsigned char* data, size_t size) nogil
    uint32_t checksum_number(uint32_t state, uint64_t number) nogil
    void checksum_both(
        uint32_t* states, const unsigned char* one, const unsigned char* other, size_t size
    ) nogil
    void checksum_prepare() nogil
    int checksum_is_multiplication_there() nogil
    # Whether multiplying is used.
    int checksum_can_multiply
