// Causal attention in exact float arithmetic (no tensor cores), any head size 1..128, storage float or bf16.
//
// Compiled once per head size: -DHEAD_DIM=<1..128>, and -DSTORAGE_BF16 for the bf16 kernels (names end in _any_bf16
// instead of _f32). Rotation needs an even head size. If HEAD_DIM % 8 == 0, pointers and strides must be multiples
// of four elements. No atomics: the same input gives the same bits.
//
// A block of 128 threads owns OWN rows (queries in forward and dq, keys in dk and dv) and walks over tiles of 64
// rows of the other side. Thread (y, x) of 8 x 16 computes scores of rows y + 8*i with rows x + 16*j of the other
// side, so a row's scores live in 16 neighbouring lanes: row reductions are shuffles, and the score tile that goes
// through shared memory needs no block barrier.
//
// Launch sizes that the host mirrors (OWN is 64 for the plain names, 32 for the _small ones):
//   STRIDE = ceil(HEAD_DIM / 4) * 4, plus 4 if that is a multiple of 8
//   tiles = ceil(seq / OWN);   block = 128 threads;   grid as below
//   flash_forward[_small]       tiles*batch*heads             shared 4*((OWN + 128)*STRIDE + OWN*68 + 192)
//   flash_backward_q            tiles*batch*heads             shared 4*((2*OWN + 128)*STRIDE + OWN*68 + 192)
//   flash_backward_kv           tiles*batch*kv_heads          the same
//   flash_backward_small        tiles*batch*(heads+kv_heads)  the same
// Backward is either the pair q then kv (q writes `delta`, kv reads it) or the one launch _small with delta = nullptr.

#ifdef STORAGE_BF16
typedef bf16 element;
#define NAMED(name) name##_any_bf16
#else
typedef float element;
#define NAMED(name) name##_f32
#endif

#define NEGATIVE_INFINITY __int_as_float(0xff800000)
constexpr int THREADS = 128;
constexpr int OTHER = 64;                                  // rows of a tile of the other side
constexpr int PADDED = (HEAD_DIM + 3) / 4 * 4;             // columns that products run over; the last may be zeros
constexpr int STRIDE = PADDED % 8 ? PADDED : PADDED + 4;   // an odd number of 16-byte words: no bank conflicts
constexpr int SCORE_STRIDE = OTHER + 4;
constexpr int COLUMNS = (HEAD_DIM + 15) / 16;              // output columns per thread
constexpr int WIDE = HEAD_DIM % 64 == 0 ? 4 : HEAD_DIM % 32 == 0 ? 2 : 1;  // of which this many are neighbours
constexpr float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ int own_row(int i) { return threadIdx.x / 16 + 8 * i; }
__device__ __forceinline__ int other_row(int j) { return threadIdx.x % 16 + 16 * j; }
__device__ __forceinline__ int column_of(int c) { return c / WIDE * 16 * WIDE + threadIdx.x % 16 * WIDE + c % WIDE; }

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

template <int COUNT>
__device__ __forceinline__ void read(const element* from, float (&values)[COUNT]) {
#ifdef STORAGE_BF16
    if constexpr (COUNT == 4) {
        uint2 packed = __ldg((const uint2*)from);
        values[0] = __uint_as_float(packed.x << 16), values[1] = __uint_as_float(packed.x & 0xffff0000u);
        values[2] = __uint_as_float(packed.y << 16), values[3] = __uint_as_float(packed.y & 0xffff0000u);
    } else {
        values[0] = to_float(*from);
    }
#else
    if constexpr (COUNT == 4) {
        float4 four = __ldg((const float4*)from);
        values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else {
        values[0] = __ldg(from);
    }
#endif
}
__device__ __forceinline__ void write(element* to, float value) {
#ifdef STORAGE_BF16
    *to = from_float<bf16>(value);
#else
    *to = value;
#endif
}

// Copies rows row0..row0+ROWS-1 of one head of each tensor into shared memory as floats; the first tensor is rotated if
// cosines are given; rows past `seq` become zeros. Even head sizes are copied in pairs of columns c and c + HEAD_DIM/2,
// which rotate together. Each batch reads everything before it writes anything, so that a tile waits on memory only a
// few times.
struct Rows {
    float* tile;
    const element* head;
    int stride;
};

template <int ROWS, int TENSORS>
__device__ __forceinline__ void load_tiles(const Rows (&from)[TENSORS], int row0, int seq, const float* cosines, const float* sines) {
    constexpr int COUNT = HEAD_DIM % 8 == 0 ? 4 : 1, WAYS = HEAD_DIM % 2 == 0 ? 2 : 1, PART = HEAD_DIM / WAYS, ITEMS = PART / COUNT;
    constexpr int TOTAL = ROWS * ITEMS, NEEDED = (TOTAL + THREADS - 1) / THREADS, MOST = COUNT == 4 ? 4 : 8, BATCH = NEEDED < MOST ? NEEDED : MOST;
#pragma unroll
    for (int base = 0; base < TOTAL; base += BATCH * THREADS) {
        float x[TENSORS][BATCH][WAYS][COUNT];
#pragma unroll
        for (int t = 0; t < TENSORS; t++)
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                int i = base + n * THREADS + threadIdx.x, row = min(row0 + i / ITEMS, seq - 1), column = i % ITEMS * COUNT;
#pragma unroll
                for (int way = 0; way < WAYS; way++) read<COUNT>(from[t].head + (size_t)row * from[t].stride + column + way * PART, x[t][n][way]);
            }
        if (WAYS == 2 && cosines) {
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                int i = base + n * THREADS + threadIdx.x, at = min(row0 + i / ITEMS, seq - 1) * PART + i % ITEMS * COUNT;
#pragma unroll
                for (int m = 0; m < COUNT; m++) {
                    float c = __ldg(cosines + at + m), s = __ldg(sines + at + m), a = x[0][n][0][m], b = x[0][n][WAYS - 1][m];
                    x[0][n][0][m] = a * c - b * s;
                    x[0][n][WAYS - 1][m] = b * c + a * s;
                }
            }
        }
#pragma unroll
        for (int t = 0; t < TENSORS; t++)
#pragma unroll
            for (int n = 0; n < BATCH; n++) {
                int i = base + n * THREADS + threadIdx.x, row = i / ITEMS, column = i % ITEMS * COUNT;
                if (TOTAL % (BATCH * THREADS) && i >= TOTAL) continue;
                float keep = row0 + row < seq ? 1 : 0;
#pragma unroll
                for (int way = 0; way < WAYS; way++) {
                    float* to = from[t].tile + row * STRIDE + column + way * PART;
                    float(&v)[COUNT] = x[t][n][way];
                    if constexpr (COUNT == 4) *(float4*)to = make_float4(v[0] * keep, v[1] * keep, v[2] * keep, v[3] * keep);
                    else *to = v[0] * keep;
                }
            }
    }
}

// Columns HEAD_DIM..PADDED-1 are part of the products: zeros, written once.
__device__ __forceinline__ void clear_padding(float* tiles, int rows) {
    if constexpr (PADDED > HEAD_DIM)
        for (int row = threadIdx.x; row < rows; row += THREADS)
            for (int column = HEAD_DIM; column < PADDED; column++) tiles[row * STRIDE + column] = 0;
}

// scores = own * other^T
template <int ROWS>
__device__ __forceinline__ void multiply_tiles(float (&scores)[ROWS][4], const float* own, const float* other) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) scores[i][j] = 0;
#pragma unroll 2
    for (int d = 0; d < PADDED; d += 4) {
        float4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++) b[j] = *(const float4*)(other + other_row(j) * STRIDE + d);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float4 a = *(const float4*)(own + own_row(i) * STRIDE + d);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                scores[i][j] += a.x * b[j].x;
                scores[i][j] += a.y * b[j].y;
                scores[i][j] += a.z * b[j].z;
                scores[i][j] += a.w * b[j].w;
            }
        }
    }
}

// sums += weights * tile; the weights pass through this warp's own rows of `scratch`.
template <int ROWS>
__device__ __forceinline__ void add_weighted_rows(float (&sums)[ROWS][COLUMNS], const float (&weights)[ROWS][4], float* scratch, const float* tile) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) scratch[own_row(i) * SCORE_STRIDE + other_row(j)] = weights[i][j];
    __syncwarp();
#pragma unroll (HEAD_DIM > 64 ? 1 : 2)
    for (int k = 0; k < OTHER; k += 4) {
        float4 a[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) a[i] = *(const float4*)(scratch + own_row(i) * SCORE_STRIDE + k);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float* row = tile + (k + n) * STRIDE;
            float b[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c += WIDE) {
                if constexpr (WIDE == 4) {
                    float4 four = *(const float4*)(row + column_of(c));
                    b[c] = four.x, b[c + 1] = four.y, b[c + 2] = four.z, b[c + 3] = four.w;
                } else if constexpr (WIDE == 2) {
                    float2 two = *(const float2*)(row + column_of(c));
                    b[c] = two.x, b[c + 1] = two.y;
                } else {
                    b[c] = row[column_of(c)];
                }
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) sums[i][c] += (n == 0 ? a[i].x : n == 1 ? a[i].y : n == 2 ? a[i].z : a[i].w) * b[c];
        }
    }
}

// Writes sums times a factor per row, rotated back if cosines are given. A column's partner HEAD_DIM/2 away lives in
// another thread, so the rotation goes through the tile `scratch` (only rows of this warp).
template <int ROWS>
__device__ __forceinline__ void store_rows(const float (&sums)[ROWS][COLUMNS], const float (&factors)[ROWS], float* scratch, element* head,
                                           int stride, int row0, int seq, const float* cosines, const float* sines) {
    constexpr int HALF = HEAD_DIM / 2;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (column_of(c) < HEAD_DIM) scratch[own_row(i) * STRIDE + column_of(c)] = sums[i][c] * factors[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        int row = row0 + own_row(i);
        if (row >= seq) continue;
        for (int column = threadIdx.x % 16; column < HEAD_DIM; column += 16) {
            float value = scratch[own_row(i) * STRIDE + column];
            if (cosines) {
                int at = column < HALF ? column : column - HALF;
                float c = __ldg(cosines + row * HALF + at), s = __ldg(sines + row * HALF + at);
                float partner = scratch[own_row(i) * STRIDE + (column < HALF ? column + HALF : column - HALF)];
                value = column < HALF ? value * c + partner * s : value * c - partner * s;
            }
            write(head + (size_t)row * stride + column, value);
        }
    }
}

extern __shared__ float4 shared_words[];

template <int ROWS>
__device__ __forceinline__ void forward(const element* q, const element* k, const element* v, element* out, float* lse, const float* cosines,
                                        const float* sines, int batch, int heads, int kv_heads, int seq, int ldq, int ldk, int ldv, int ldo,
                                        float scale) {
    constexpr int OWN = 8 * ROWS;
    float *q_tile = (float*)shared_words, *k_tile = q_tile + OWN * STRIDE, *v_tile = k_tile + OTHER * STRIDE, *scratch = v_tile + OTHER * STRIDE;
    int pairs = batch * heads, pair = blockIdx.x % pairs, b = pair / heads, h = pair % heads, kv = h * kv_heads / heads;
    int row0 = ((seq + OWN - 1) / OWN - 1 - (int)blockIdx.x / pairs) * OWN, end = min(row0 + OWN, seq);  // the longest rows first
    k += (size_t)b * seq * ldk + kv * HEAD_DIM;
    v += (size_t)b * seq * ldv + kv * HEAD_DIM;
    clear_padding(q_tile, OWN + 2 * OTHER);
    const Rows own[1] = {{q_tile, q + (size_t)b * seq * ldq + h * HEAD_DIM, ldq}}, other[2] = {{k_tile, k, ldk}, {v_tile, v, ldv}};
    load_tiles<OWN>(own, row0, seq, cosines, sines);
    float sums[ROWS][COLUMNS] = {}, highest[ROWS], total[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) highest[i] = NEGATIVE_INFINITY;

    for (int key0 = 0; key0 < end; key0 += OTHER) {
        __syncthreads();
        load_tiles<OTHER>(other, key0, seq, cosines, sines);
        __syncthreads();
        float scores[ROWS][4];
        multiply_tiles<ROWS>(scores, q_tile, k_tile);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float top = highest[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                scores[i][j] = key0 + other_row(j) > row0 + own_row(i) ? NEGATIVE_INFINITY : scores[i][j] * (scale * LOG2_E);
                top = fmaxf(top, scores[i][j]);
            }
#pragma unroll
            for (int lanes = 1; lanes < 16; lanes *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
            float shrink = exp2_fast(highest[i] - top);
            highest[i] = top;
            total[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 4; j++) total[i] += scores[i][j] = exp2_fast(scores[i][j] - top);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) sums[i][c] *= shrink;
        }
        add_weighted_rows<ROWS>(sums, scores, scratch, v_tile);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        total[i] = sum_of_row(total[i]);
        int row = row0 + own_row(i);
        if (threadIdx.x % 16 == 0 && row < seq) lse[(size_t)pair * seq + row] = highest[i] / LOG2_E + logf(total[i]);
        total[i] = 1 / total[i];
    }
    store_rows<ROWS>(sums, total, q_tile, out + (size_t)b * seq * ldo + h * HEAD_DIM, ldo, row0, seq, nullptr, nullptr);
}

struct Backward {
    const element *q, *k, *v, *out, *dout;
    const float* lse;
    float* delta;
    element *dq, *dk, *dv;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv, rotated;
    float scale;
};

// delta[i] = sum(dout * out) of row row0 + own_row(i): dout from its tile in shared memory, out from one head in
// global memory. Four rows are read before any is used. Rows past `seq` hold zeros in the tile.
template <int COUNT>
__device__ __forceinline__ void take_deltas(float (&delta)[COUNT], const float* dout_tile, const element* out, int stride, int row0, int seq) {
#pragma unroll
    for (int base = 0; base < COUNT; base += 4) {
        float value[4][COLUMNS][1];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                read<1>(out + (size_t)min(row0 + own_row(base + i), seq - 1) * stride + min((int)(threadIdx.x % 16) + 16 * c, HEAD_DIM - 1), value[i][c]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                int column = threadIdx.x % 16 + 16 * c;
                if (column < HEAD_DIM) sum += dout_tile[own_row(base + i) * STRIDE + column] * value[i][c][0];
            }
            delta[base + i] = sum_of_row(sum);
        }
    }
}

template <int ROWS>
__device__ __forceinline__ void backward_q(const Backward& p, int block) {
    constexpr int OWN = 8 * ROWS;
    float *q_tile = (float*)shared_words, *dout_tile = q_tile + OWN * STRIDE, *k_tile = dout_tile + OWN * STRIDE;
    float *v_tile = k_tile + OTHER * STRIDE, *scratch = v_tile + OTHER * STRIDE;
    int pairs = p.batch * p.heads, pair = block % pairs, b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int row0 = ((p.seq + OWN - 1) / OWN - 1 - block / pairs) * OWN, end = min(row0 + OWN, p.seq);
    const element *k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM, *v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    const element* out = p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM;
    const float *cosines = p.rotated ? nullptr : p.cosines, *sines = p.sines;
    clear_padding(q_tile, 2 * OWN + 2 * OTHER);
    const Rows own[2] = {{q_tile, p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM, p.ldq},
                         {dout_tile, p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM, p.lddo}};
    const Rows other[2] = {{k_tile, k, p.ldk}, {v_tile, v, p.ldv}};
    load_tiles<OWN>(own, row0, p.seq, cosines, sines);
    __syncthreads();
    float sums[ROWS][COLUMNS] = {}, lse[ROWS], delta[ROWS], factors[ROWS];
    take_deltas<ROWS>(delta, dout_tile, out, p.ldo, row0, p.seq);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        int row = row0 + own_row(i);
        factors[i] = p.scale;
        lse[i] = row < p.seq ? p.lse[(size_t)pair * p.seq + row] * LOG2_E : 0;
        if (p.delta && threadIdx.x % 16 == 0 && row < p.seq) p.delta[(size_t)pair * p.seq + row] = delta[i];
    }
    for (int key0 = 0; key0 < end; key0 += OTHER) {
        __syncthreads();
        load_tiles<OTHER>(other, key0, p.seq, cosines, sines);
        __syncthreads();
        float scores[ROWS][4], slopes[ROWS][4];
        multiply_tiles<ROWS>(scores, q_tile, k_tile);
        multiply_tiles<ROWS>(slopes, dout_tile, v_tile);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float weight = exp2_fast(scores[i][j] * (p.scale * LOG2_E) - lse[i]);
                scores[i][j] = key0 + other_row(j) > row0 + own_row(i) ? 0 : weight * (slopes[i][j] - delta[i]);
            }
        add_weighted_rows<ROWS>(sums, scores, scratch, k_tile);
    }
    __syncthreads();
    store_rows<ROWS>(sums, factors, q_tile, p.dq + (size_t)b * p.seq * p.lddq + h * HEAD_DIM, p.lddq, row0, p.seq, p.cosines, p.sines);
}

template <int ROWS>
__device__ __forceinline__ void backward_kv(const Backward& p, int block) {
    constexpr int OWN = 8 * ROWS;
    float *k_tile = (float*)shared_words, *v_tile = k_tile + OWN * STRIDE, *q_tile = v_tile + OWN * STRIDE;
    float *dout_tile = q_tile + OTHER * STRIDE, *scratch = dout_tile + OTHER * STRIDE, *lse = scratch + OWN * SCORE_STRIDE, *delta = lse + OTHER;
    int pairs = p.batch * p.kv_heads, pair = block % pairs, b = pair / p.kv_heads, kv = pair % p.kv_heads, sharing = p.heads / p.kv_heads;
    int row0 = block / pairs * OWN;  // the first keys have the most queries
    const float *cosines = p.rotated ? nullptr : p.cosines, *sines = p.sines;
    clear_padding(k_tile, 2 * OWN + 2 * OTHER);
    const Rows own[2] = {{k_tile, p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM, p.ldk},
                         {v_tile, p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM, p.ldv}};
    load_tiles<OWN>(own, row0, p.seq, cosines, sines);
    float dk[ROWS][COLUMNS] = {}, dv[ROWS][COLUMNS] = {}, factors[ROWS];

    for (int h = kv * sharing; h < (kv + 1) * sharing; h++)
        for (int query0 = row0 / OTHER * OTHER; query0 < p.seq; query0 += OTHER) {
            size_t first = ((size_t)b * p.heads + h) * p.seq + query0;
            __syncthreads();
            const Rows other[2] = {{q_tile, p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM, p.ldq},
                                   {dout_tile, p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM, p.lddo}};
            load_tiles<OTHER>(other, query0, p.seq, cosines, sines);
            if (threadIdx.x < OTHER) {
                bool exists = query0 + threadIdx.x < p.seq;
                lse[threadIdx.x] = exists ? p.lse[first + threadIdx.x] * LOG2_E : 0;
                if (p.delta) delta[threadIdx.x] = exists ? p.delta[first + threadIdx.x] : 0;
            }
            __syncthreads();
            float scores[ROWS][4], slopes[ROWS][4];
            multiply_tiles<ROWS>(scores, k_tile, q_tile);
            multiply_tiles<ROWS>(slopes, v_tile, dout_tile);
            if (!p.delta) {
                float taken[OTHER / 8];
                take_deltas<OTHER / 8>(taken, dout_tile, p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM, p.ldo, query0, p.seq);
#pragma unroll
                for (int i = 0; i < OTHER / 8; i++)
                    if (threadIdx.x % 16 == 0) delta[own_row(i)] = taken[i];
                __syncthreads();
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    float weight = exp2_fast(scores[i][j] * (p.scale * LOG2_E) - lse[other_row(j)]);
                    if (query0 + other_row(j) < row0 + own_row(i)) weight = 0;
                    scores[i][j] = weight;
                    slopes[i][j] = weight * (slopes[i][j] - delta[other_row(j)]);
                }
            add_weighted_rows<ROWS>(dv, scores, scratch, dout_tile);
            add_weighted_rows<ROWS>(dk, slopes, scratch, q_tile);
        }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) factors[i] = 1;
    store_rows<ROWS>(dv, factors, v_tile, p.dv + (size_t)b * p.seq * p.lddv + kv * HEAD_DIM, p.lddv, row0, p.seq, nullptr, nullptr);
#pragma unroll
    for (int i = 0; i < ROWS; i++) factors[i] = p.scale;
    store_rows<ROWS>(dk, factors, k_tile, p.dk + (size_t)b * p.seq * p.lddk + kv * HEAD_DIM, p.lddk, row0, p.seq, p.cosines, p.sines);
}

#define FORWARD_PARAMETERS                                                                                                      \
    const element *q, const element *k, const element *v, element *out, float *lse, const float *cosines, const float *sines, int batch, \
        int heads, int kv_heads, int seq, int ldq, int ldk, int ldv, int ldo, float scale
#define FORWARD_ARGUMENTS q, k, v, out, lse, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, scale
#define BACKWARD_PARAMETERS                                                                                                     \
    const element *q, const element *k, const element *v, const element *out, const element *dout, const float *lse, float *delta, \
        element *dq, element *dk, element *dv, const float *cosines, const float *sines, int batch, int heads, int kv_heads, int seq, \
        int ldq, int ldk, int ldv, int ldo, int lddo, int lddq, int lddk, int lddv, int rotated, float scale
#define BACKWARD_ARGUMENTS                                                                                                      \
    Backward { q, k, v, out, dout, lse, delta, dq, dk, dv, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, lddo, lddq, \
               lddk, lddv, rotated, scale }

extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 3) NAMED(flash_forward)(FORWARD_PARAMETERS) { in_turn(); forward<8>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 2 : 3) NAMED(flash_forward_small)(FORWARD_PARAMETERS) { in_turn(); forward<4>(FORWARD_ARGUMENTS); }
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2) NAMED(flash_backward_q)(BACKWARD_PARAMETERS) { in_turn(); backward_q<8>(BACKWARD_ARGUMENTS, blockIdx.x); }
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 1 : 2) NAMED(flash_backward_kv)(BACKWARD_PARAMETERS) { in_turn(); backward_kv<8>(BACKWARD_ARGUMENTS, blockIdx.x); }
extern "C" __global__ void __launch_bounds__(THREADS, HEAD_DIM > 64 ? 2 : 3) NAMED(flash_backward_small)(BACKWARD_PARAMETERS) {
    in_turn();
    int key_blocks = (seq + 31) / 32 * batch * kv_heads, block = blockIdx.x;
    if (block < key_blocks) backward_kv<4>(BACKWARD_ARGUMENTS, block);
    else backward_q<4>(BACKWARD_ARGUMENTS, block - key_blocks);
}
