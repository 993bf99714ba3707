// Quantizes values to eight bits with the scale of their tensor, row-major and transposed in one pass over the sources;
// finds their largest value, and sets scales from it.
//
// A slot: [0] the unit (a power of two, zero before the first use), [1] the largest absolute value since the last
// update, [2] count of values beyond the largest number, [3] updates out of range, [4] updates, [8..24] the largest
// values of the last steps.

#define TILE 128
#define HISTORY 8
#define KEPT_STEPS 16

enum Of { COLUMNS, ROWS, NORM, SWIGLU, SWIGLU_GRAD };

// Up to three matrices, or one with a weight for its columns and scales for its rows, both in float. `end` is where the
// first and the second matrix end, along the axis that they are joined on.
struct Sources {
    const bf16* at[3];
    u64 pitch[3];
    u32 end[2];
};

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

typedef Pack<bf16, 8> Eight;

// Four rows of eight columns of every source, as loaded.
template <int OF>
struct Unit {
    static constexpr int SOURCES = OF == SWIGLU_GRAD ? 3 : OF == SWIGLU ? 2 : 1;
    Eight packs[SOURCES][4];
    float weight[OF == NORM ? 8 : 1], scales[OF == NORM ? 4 : 1];
};

// Starts at (row, col); sizes are multiples of 16, so that a unit lies in one source.
template <int OF>
__device__ __forceinline__ void load_unit(const Sources& s, u32 row, u32 col, Unit<OF>& unit) {
    if constexpr (OF == COLUMNS || OF == ROWS) {
        u32 place = OF == COLUMNS ? col : row;
        bool first = place < s.end[0], second = place < s.end[1];
        u32 start = first ? 0 : second ? s.end[0] : s.end[1];
        const bf16* at = first ? s.at[0] : second ? s.at[1] : s.at[2];
        u64 pitch = first ? s.pitch[0] : second ? s.pitch[1] : s.pitch[2];
        if (OF == COLUMNS) col -= start;
        else row -= start;
#pragma unroll
        for (int r = 0; r < 4; r++) unit.packs[0][r] = load<8>(at + (u64)(row + r) * pitch + col);
    } else {
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int k = 0; k < Unit<OF>::SOURCES; k++)
                unit.packs[k][r] = load<8>(s.at[k] + (u64)(row + r) * s.pitch[k] + col);
        if constexpr (OF == NORM) {
            load_floats<8>((const float*)s.at[1] + col, unit.weight);
            load_floats<4>((const float*)s.at[2] + row, unit.scales);
        }
    }
}

// Computes one row of the values to quantize; the gradient of a SwiGLU has a second result, for `up`.
template <int OF>
__device__ __forceinline__ void make_row(const Unit<OF>& unit, int r, float (&x)[8], float (&second)[8]) {
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float z = to_float(unit.packs[0][r].x[c]);
        if constexpr (OF == NORM) x[c] = unit.weight[c] * (z * unit.scales[r]);
        else if constexpr (OF == SWIGLU) x[c] = z * sigmoid(z) * to_float(unit.packs[1][r].x[c]);
        else if constexpr (OF == SWIGLU_GRAD) {
            float sg = sigmoid(z), arrived = to_float(unit.packs[2][r].x[c]);
            x[c] = arrived * to_float(unit.packs[1][r].x[c]) * sg * (1.0f + z * (1.0f - sg));
            second[c] = arrived * z * sg;
        } else x[c] = z;
    }
}

// The bits of a positive number grow with it, and those of NaN are above all.
__device__ __forceinline__ u32 most_bits(const float (&x)[8], u32 most) {
#pragma unroll
    for (int c = 0; c < 8; c++) most = max(most, __float_as_uint(fabsf(x[c])));
    return most;
}

__device__ __forceinline__ void note_most(float* slot, u32 most) {
    most = __reduce_max_sync(0xffffffff, most);
    if (threadIdx.x % 32 == 0 && most > __float_as_uint(*(volatile float*)(slot + 1))) atomicMax((u32*)(slot + 1), most);
}

// The first number is the lower byte.
template <bool E5>
__device__ __forceinline__ u32 two_codes(float low, float high) {
    u16 codes;
    if (E5) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}

// Quantizes a row of a unit: one word for each half. Counts values beyond the largest number.
template <bool E5>
__device__ __forceinline__ u32 round_row(const float (&x)[8], float scale, u32 (&words)[2]) {
    const float largest = E5 ? 57344.0f : 448.0f;
    u32 beyond = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float y[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            y[k] = x[4 * h + k] * scale;
            beyond += fabsf(y[k]) > largest;
        }
        words[h] = two_codes<E5>(y[0], y[1]) | two_codes<E5>(y[2], y[3]) << 16;
    }
    return beyond;
}

// Transposes four words of four bytes.
__device__ __forceinline__ void transpose(u32 a, u32 b, u32 c, u32 d, u32 (&t)[4]) {
    u32 ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    u32 cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    t[0] = __byte_perm(ab_low, cd_low, 0x5410);
    t[1] = __byte_perm(ab_low, cd_low, 0x7632);
    t[2] = __byte_perm(ab_high, cd_high, 0x5410);
    t[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Writes one tile's codes: rows to `out`, and columns to `out_t` through shared memory. In the tile, a column is 32
// words; their order depends on the column, so that neither writes nor reads have bank conflicts.
__device__ __forceinline__ void write_tile(u32* tile, const u32 (&words)[2][4][2], u8* out, u8* out_t, u32 rows, u32 cols,
                                           u64 width) {
    u32 group = threadIdx.x % 16, four = threadIdx.x / 16;
    u32 row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        u32 row = row0 + pass * 64 + four * 4, col = col0 + group * 8;
        bool inside = row < rows && col < cols;
        if (out && inside) {
#pragma unroll
            for (int r = 0; r < 4; r++) *(uint2*)(out + (row + r) * width + col) = make_uint2(words[pass][r][0], words[pass][r][1]);
        }
        if (out_t) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 t[4];
                transpose(words[pass][0][h], words[pass][1][h], words[pass][2][h], words[pass][3][h], t);
#pragma unroll
                for (int k = 0; k < 4; k++) tile[(group * 8 + 4 * h + k) * 32 + ((pass * 16 + four) ^ (group * 2))] = t[k];
            }
        }
    }
    if (!out_t) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        u32 at = i * 256 + threadIdx.x, col = at / 16, pair = at % 16;
        if (col0 + col < cols && row0 + pair * 8 < rows)
            *(uint2*)(out_t + (u64)(col0 + col) * rows + row0 + pair * 8) = *(uint2*)&tile[col * 32 + ((2 * pair) ^ (col / 8 * 2))];
    }
}

// A block of 256 threads per tile of 128 x 128. Either of the outputs may be missing.
template <bool E5, int OF>
__device__ void quantize_tiles(float* slot, const Sources& s, u32 rows, u32 cols, u8* out, u8* out_t) {
    __shared__ u32 tile[TILE * 32];
    constexpr bool TWO = OF == SWIGLU_GRAD;
    float scale = 1.0f / slot[0];
    u32 most = 0, beyond = 0;
    u32 words[2][4][2], more[2][4][2];
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        u32 row = blockIdx.y * TILE + pass * 64 + threadIdx.x / 16 * 4, col = blockIdx.x * TILE + threadIdx.x % 16 * 8;
        if (row < rows && col < cols) {
            Unit<OF> unit;
            load_unit<OF>(s, row, col, unit);
#pragma unroll
            for (int r = 0; r < 4; r++) {
                float x[8], second[8];
                make_row<OF>(unit, r, x, second);
                most = most_bits(x, most);
                beyond += round_row<E5>(x, scale, words[pass][r]);
                if (TWO) {
                    most = most_bits(second, most);
                    beyond += round_row<E5>(second, scale, more[pass][r]);
                }
            }
        }
    }
    u64 width = TWO ? 2 * (u64)cols : cols;
    write_tile(tile, words, out, out_t, rows, cols, width);
    if (TWO) {
        __syncthreads();
        write_tile(tile, more, out ? out + cols : out, out_t ? out_t + (u64)cols * rows : out_t, rows, cols, width);
    }
    note_most(slot, most);
    beyond = __reduce_add_sync(0xffffffff, beyond);
    if (threadIdx.x % 32 == 0 && beyond) atomicAdd(slot + 2, (float)beyond);
}

// The largest value to be quantized, if no scale is known yet.
template <int OF>
__device__ void largest_of(float* slot, const Sources& s, u32 rows, u32 cols) {
    if (slot[0] != 0.0f) return;
    u32 a_row = cols / 8, most = 0;
    u64 all = (u64)a_row * (rows / 4);
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < all; i += (u64)gridDim.x * blockDim.x) {
        Unit<OF> unit;
        load_unit<OF>(s, (u32)(i / a_row) * 4, (u32)(i % a_row) * 8, unit);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float x[8], second[8];
            make_row<OF>(unit, r, x, second);
            most = most_bits(x, most);
            if (OF == SWIGLU_GRAD) most = most_bits(second, most);
        }
    }
    note_most(slot, most);
}

#define PARAMETERS                                                                                                          \
    float *slot, const bf16 *a, const bf16 *b, const bf16 *c, u64 lda, u64 ldb, u64 ldc, u32 end0, u32 end1, u32 rows, u32 cols
#define SOURCES                         \
    Sources s;                          \
    s.at[0] = a, s.at[1] = b, s.at[2] = c; \
    s.pitch[0] = lda, s.pitch[1] = ldb, s.pitch[2] = ldc; \
    s.end[0] = end0, s.end[1] = end1;

#define EACH(name, OF, BLOCKS)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) quantize_##name##_e4m3(PARAMETERS, u8* out, u8* out_t) {   \
        in_turn(); SOURCES quantize_tiles<false, OF>(slot, s, rows, cols, out, out_t);                                      \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) quantize_##name##_e5m2(PARAMETERS, u8* out, u8* out_t) {   \
        in_turn(); SOURCES quantize_tiles<true, OF>(slot, s, rows, cols, out, out_t);                                       \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) largest_##name(PARAMETERS) {                               \
        in_turn(); SOURCES largest_of<OF>(slot, s, rows, cols);                                                             \
    }
EACH(columns, COLUMNS, 4)
EACH(rows, ROWS, 4)
EACH(norm, NORM, 4)
EACH(swiglu, SWIGLU, 3)
EACH(swiglu_grad, SWIGLU_GRAD, 2)

__device__ __forceinline__ float power(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// The unit that brings `largest` into range with a margin; `top` is the exponent of the format's largest number, which
// is 1.75 times a power of two.
__device__ float unit_for(float largest, int top, int margin, bool& left) {
    int own = (int)(__float_as_uint(largest) >> 23) - 127;
    int wanted = own - top + (largest / power(own < -126 ? -126 : own) > 1.75f) + margin;
    int kept = wanted < -100 ? -100 : wanted > 100 ? 100 : wanted;
    left = kept != wanted;
    return power(kept);
}

__device__ __forceinline__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// The first scale of a tensor, from its own values.
extern "C" __global__ void first_unit(float* slot, u32 top, u32 margin) {
    in_turn();
    if (slot[0] != 0.0f) return;
    float largest = slot[1];
    bool left;
    slot[0] = is_finite(largest) && largest > 0.0f ? unit_for(largest, (int)top, (int)margin, left) : 1.0f;
}

// Scales for the next step, one per thread.
extern "C" __global__ void update_scales(float* const* slots, u32 count, u32 top, u32 margin) {
    in_turn();
    u32 index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    float* slot = slots[index];
    float largest = slot[1];
    slot[1] = 0.0f;
    if (slot[0] != slot[0] || largest == 0.0f) return;
    if (!is_finite(largest)) {
        slot[3] += 1.0f;
        return;
    }
    slot[HISTORY + (u32)slot[4] % KEPT_STEPS] = largest;
    slot[4] += 1.0f;
    float most = 0.0f;
    for (int step = 0; step < KEPT_STEPS; step++) most = fmaxf(most, slot[HISTORY + step]);
    bool left;
    slot[0] = unit_for(most, (int)top, (int)margin, left);
    if (left) slot[3] += 1.0f;
}

// Converts normal numbers to e4m3 codes, for a measurement of products; `from` and `to` do not overlap.
extern "C" __global__ void as_codes(const bf16* from, u8* to, u64 n) {
    in_turn();
    for (u64 i = (blockIdx.x * (u64)blockDim.x + threadIdx.x) * 8; i < n; i += (u64)gridDim.x * blockDim.x * 8) {
        auto pack = load<8>(from + i);
        float x[8];
        for (int k = 0; k < 8; k++) x[k] = to_float(pack.x[k]);
        uint2 codes;
        codes.x = two_codes<false>(x[0], x[1]) | two_codes<false>(x[2], x[3]) << 16;
        codes.y = two_codes<false>(x[4], x[5]) | two_codes<false>(x[6], x[7]) << 16;
        *(uint2*)(to + i) = codes;
    }
}
