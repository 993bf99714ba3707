// Tiled causal attention on the tensor cores of any device from Ampere on: all gradients in one pass over the scores.
//
// A block owns 64*KEY_TILES keys of one kv head and walks over the queries that see them. Scores are computed
// transposed (keys down, queries across), so that the product's weights already have the layout of the next left
// operand, for dk and dv, which stay in registers; for dq they pass through shared memory. dq of a tile of queries is
// summed over blocks in a fixed order: a block waits for its turn, adds to the partial sums in memory and passes the
// turn on; the last one (the diagonal's) writes dq. Blocks take tickets when they start, in the order of their turns,
// so any block that is waited for has always started. They walk from the last queries to the diagonal: a block that
// starts later finds its predecessors long past the tile where it begins.
//
// With ANY_ORDER, blocks add in any order, and a second kernel computes dq from the sums: faster, but the bytes differ
// from run to run.
//
// Heads up to 64: one warp handles all of its 32 keys. Larger ones: two warps share 32 keys, each with half of the
// queries for scores and half of the columns for dk and dv; weights then pass through shared memory as well.

#ifndef KEY_TILES
#define KEY_TILES 2
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef ANY_ORDER
#define ANY_ORDER 0
#endif
constexpr bool SHARED_KEYS = HEAD_DIM > 64;
constexpr int KEYS = TILE_ROWS * KEY_TILES, GROUPS = KEYS / 32, WARPS = SHARED_KEYS ? 2 * GROUPS : GROUPS, THREADS = 32 * WARPS;
// Columns are distributed in couples: a part of 8 columns, and their partners HEAD_DIM/2 further. For dq of a tile of
// queries, a warp has 32 rows and COUPLES of them; for dk and dv, 32 rows and KEY_COUPLES.
constexpr int COLUMN_WARPS = WARPS / 2, COUPLES = (PARTS / 2 + COLUMN_WARPS - 1) / COLUMN_WARPS;
constexpr int KEY_COUPLES = SHARED_KEYS ? (PARTS / 2 + 1) / 2 : PARTS / 2;

struct Backward {
    const bf16 *q, *k, *v, *out, *dout;
    const float* lse;
    float* delta;
    bf16 *dq, *dk, *dv;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv, rotated;
    float scale;
    float4* partial;
    int* turns;  // the next ticket, then per head and tile of queries how many blocks have added to its dq
};

struct Rows {  // of one step
    u32 q_tile, dout_tile, lse, delta;
    int query0;
};

// Turns scores and slopes of 32 keys (down) and 32 queries, starting at row `over` of the tile, into weights,
// exp(score - lse), and changes, weight * (slope - delta); zero above the diagonal. `between` is called between the
// scores' products.
template <typename Between>
__device__ __forceinline__ void take_changes(u32 (&weights)[2][2][4], u32 (&changes)[2][2][4], const Rows& rows, u32 k_tile, u32 v_tile, int own_row,
                                             int over, int key, float scale, Between between) {
    int lane = lane_of_thread(), query = rows.query0 + over;
    float scores[2][4][4], slopes[2][4][4];  // k q^T and v dout^T
    multiply_rows(scores, k_tile, own_row, rows.q_tile, over, between);
    if (query < key + 31) {
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (query + 8 * n + lane % 4 * 2 + i % 2 < key + 16 * m + lane / 4 + i / 2 * 8) scores[m][n][i] = NEGATIVE_INFINITY;
    }
    float2 lse[4];
#pragma unroll
    for (int n = 0; n < 4; n++) lse[n] = read_shared_floats(rows.lse + (over + 8 * n + lane % 4 * 2) * 4);
    multiply_rows(slopes, v_tile, own_row, rows.dout_tile, over, [&](int k) {
        constexpr int STEPS = HEAD_DIM / 16;
#pragma unroll
        for (int piece = 8 * k / STEPS; piece < 8 * (k + 1) / STEPS; piece++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int m = piece % 2, n = piece / 2;
                scores[m][n][i] = exp2_fast(scores[m][n][i] * scale - (i % 2 ? lse[n].y : lse[n].x) * LOG2_E);
            }
    });
    pack_weights(weights, scores);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float2 delta = read_shared_floats(rows.delta + (over + 8 * n + lane % 4 * 2) * 4);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) slopes[m][n][i] = scores[m][n][i] * (slopes[m][n][i] - (i % 2 ? delta.y : delta.x));
    }
    pack_weights(changes, slopes);
}

// 32 keys times 32 queries, starting at row `over`; a row of 128 bytes per key, swizzled like a tile.
__device__ __forceinline__ void write_weights(const u32 (&weights)[2][2][4], u32 rows, int over) {
    int lane = lane_of_thread();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = 16 * m + lane / 4 + i % 2 * 8, chunk = over / 8 + 2 * k + i / 2;
                write_shared4(rows + row * 128 + ((chunk ^ (row & 7)) << 4) + lane % 4 * 4, weights[m][k][i]);
            }
}

// sums += weights * rows of a tile, starting at row `over`, in couples of columns starting at `first`.
template <int KT>
__device__ __forceinline__ void add_couples(float (&sums)[KEY_COUPLES][2][2][4], const u32 (&weights)[2][KT][4], u32 tile, int over, int first) {
#pragma unroll
    for (int k = 0; k < KT; k++)
#pragma unroll
        for (int c = 0; c < KEY_COUPLES; c++) {
            int part = min(first + c, PARTS / 2 - 1);
            u32 right[4];
            read_across(right, tile, over + 16 * k, part, part + PARTS / 2);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply_add(sums[c][0][m], weights[m][k], right[0], right[1]);
                multiply_add(sums[c][1][m], weights[m][k], right[2], right[3]);
            }
        }
}

// The same with weights that passed through shared memory: 32 keys starting at `rows`, all 64 queries.
__device__ __forceinline__ void add_passed_couples(float (&sums)[KEY_COUPLES][2][2][4], u32 rows, u32 tile, int first) {
    int lane = lane_of_thread();
#pragma unroll
    for (int k = 0; k < TILE_ROWS / 16; k++) {
        u32 weights[2][1][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            int row = 16 * m + lane % 16, chunk = 2 * k + lane / 16;
            read_matrices(weights[m][0], rows + row * 128 + ((chunk ^ (row & 7)) << 4));
        }
        add_couples(sums, weights, tile, 16 * k, first);
    }
}

// dk or dv of this warp's 32 keys, rotated back if cosines are given.
__device__ __forceinline__ void store_keys(float (&sums)[KEY_COUPLES][2][2][4], int first, float factor, bf16* head, int stride, int row0, int seq,
                                           const float* cosines, const float* sines) {
    int lane = lane_of_thread();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = row0 + 16 * m + lane / 4 + 8 * r;
            if (row >= seq) continue;
#pragma unroll
            for (int c = 0; c < KEY_COUPLES; c++) {
                if (first + c >= PARTS / 2) continue;
                float(&a)[4] = sums[c][0][m], (&b)[4] = sums[c][1][m];
                int column = 8 * (first + c) + lane % 4 * 2;
                if (cosines) turn_back(a[2 * r], a[2 * r + 1], b[2 * r], b[2 * r + 1], cosines, sines, row, column);
                *(u32*)(head + (size_t)row * stride + column) = pack(a[2 * r] * factor, a[2 * r + 1] * factor);
                *(u32*)(head + (size_t)row * stride + column + HEAD_DIM / 2) = pack(b[2 * r] * factor, b[2 * r + 1] * factor);
            }
        }
}

// dq of this warp's rows of a tile of queries, rotated back if cosines are given.
__device__ __forceinline__ void store_queries(float (&sums)[COUPLES][2][2][4], const Backward& p, int b, int h, int query0) {
    int lane = lane_of_thread(), warp = warp_of_thread(), queries = warp % 2 * 32, column = warp / 2;
    bf16* dq = p.dq + (size_t)b * p.seq * p.lddq + h * HEAD_DIM;
#pragma unroll
    for (int c = 0; c < COUPLES; c++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int row = query0 + queries + 16 * m + lane / 4 + 8 * r, part = column + c * COLUMN_WARPS, at = 8 * part + lane % 4 * 2;
                if (row >= p.seq || part >= PARTS / 2) continue;
                float(&x)[4] = sums[c][0][m], (&y)[4] = sums[c][1][m];
                if (p.cosines) turn_back(x[2 * r], x[2 * r + 1], y[2 * r], y[2 * r + 1], p.cosines, p.sines, row, at);
                *(u32*)(dq + (size_t)row * p.lddq + at) = pack(x[2 * r] * p.scale, x[2 * r + 1] * p.scale);
                *(u32*)(dq + (size_t)row * p.lddq + at + HEAD_DIM / 2) = pack(y[2 * r] * p.scale, y[2 * r + 1] * p.scale);
            }
}

// Address of the partial sums of a tile of queries: COUPLES * 4 times one float4 per thread.
__device__ __forceinline__ float4* partial_of(const Backward& p, size_t tile) {
    return p.partial + tile * (COUPLES * 4) * THREADS + threadIdx.x;
}

__device__ __forceinline__ void backward(const Backward& p) {
    u32 tiles = shared_tiles();
    u32 values = tiles + KEY_TILES * TILE_BYTES, stages = values + KEY_TILES * TILE_BYTES;
    u32 changes_tile = stages + 2 * STAGES * TILE_BYTES, weights_tile = changes_tile + KEY_TILES * 8192;
    u32 stage_rows = SHARED_KEYS ? weights_tile + KEY_TILES * 8192 : weights_tile;
    int lane = lane_of_thread(), warp = warp_of_thread(), group = warp % GROUPS, side = warp / GROUPS, couple = side * KEY_COUPLES;
    if (threadIdx.x == 0) write_shared4(stage_rows, atomicAdd(p.turns, 1));
    __syncthreads();
    int ticket = __float_as_int(read_shared_floats(stage_rows).x);
    __syncthreads();
    Turn place = turn_of(ticket, p.batch * p.kv_heads, (p.seq + KEYS - 1) / KEYS, p.seq);
    int number = place.number, pair = place.pair;  // the first keys have the most queries
    int b = pair / p.kv_heads, kv = pair % p.kv_heads, sharing = p.heads / p.kv_heads;
    int block0 = number * KEYS, key = block0 + group * 32;
    int query_tiles = (p.seq + TILE_ROWS - 1) / TILE_ROWS, first = number * KEY_TILES, per_head = query_tiles - first, steps = per_head * sharing;
    u32 k_tile = tiles + group / 2 * TILE_BYTES, v_tile = values + group / 2 * TILE_BYTES, own_changes = changes_tile + group * 4096, own_weights = weights_tile + group * 4096;
    int own_row = group % 2 * 32;
    bool turn = p.cosines && !p.rotated;
    float scale = p.scale * LOG2_E;

    int loading_head = 0, loading_tile = 0;  // counters instead of divisions of the step
    typedef TileCopy<THREADS> Copy;
    constexpr int PASSES = Share<THREADS>::PASSES;
    struct Loading {
        Copy queries, slants;
        u32 rows;
        size_t row0;
        int query0;
    };
    auto next_step = [&](int step) {
        int h = kv * sharing + loading_head, query0 = (query_tiles - 1 - loading_tile) * TILE_ROWS;
        if (++loading_tile == per_head) loading_tile = 0, loading_head++;
        u32 stage = stages + step % STAGES * 2 * TILE_BYTES;
        return Loading{Copy(stage, p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM, p.ldq, query0, p.seq),
                       Copy(stage + TILE_BYTES, p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM, p.lddo, query0, p.seq),
                       stage_rows + step % STAGES * 512, ((size_t)b * p.heads + h) * p.seq, query0};
    };
    // Past the end lse = delta = 0 is harmless: q and dout are zeros there, and so are their contributions.
    auto load_values = [&](const Loading& loading) {
        for (int i = threadIdx.x; i < 128; i += THREADS) {
            int query = loading.query0 + i % 64;
            copy4(loading.rows + i * 4, (i < 64 ? p.lse : p.delta) + loading.row0 + min(query, p.seq - 1), query < p.seq ? 4 : 0);
        }
    };
    auto load_step = [&](int step) {
        Loading loading = next_step(step);
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) loading.queries.pass(pass), loading.slants.pass(pass);
        load_values(loading);
    };
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++) {
        load_tile<THREADS>(tiles + t * TILE_BYTES, p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM, p.ldk, block0 + t * TILE_ROWS, p.seq);
        load_tile<THREADS>(values + t * TILE_BYTES, p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM, p.ldv, block0 + t * TILE_ROWS, p.seq);
    }
    load_step(0);

    float dk[KEY_COUPLES][2][2][4], dv[KEY_COUPLES][2][2][4];
#pragma unroll
    for (int c = 0; c < KEY_COUPLES; c++) clear(dk[c]), clear(dv[c]);
    int* given = nullptr;  // the turn to pass on once the whole block has written
    int head = 0, tile = 0;
    for (int step = 0; step < steps; step++) {
        int h = kv * sharing + head, query_tile = query_tiles - 1 - tile;
        if (++tile == per_head) tile = 0, head++;
        u32 stage = stages + step % STAGES * 2 * TILE_BYTES, values_of_rows = stage_rows + step % STAGES * 512;
        Rows rows = {stage, stage + TILE_BYTES, values_of_rows, values_of_rows + 256, query_tile * TILE_ROWS};
        int* turns = p.turns + 1 + ((size_t)b * p.heads + h) * query_tiles + query_tile;
        float4* partial = partial_of(p, ((size_t)b * p.heads + h) * query_tiles + query_tile);
        wait_copies();
        if (turn) {
            if (step == 0) {
#pragma unroll
                for (int t = 0; t < KEY_TILES; t++) rotate_tile<THREADS>(tiles + t * TILE_BYTES, p.cosines, p.sines, block0 + t * TILE_ROWS, p.seq);
            }
            rotate_tile<THREADS>(rows.q_tile, p.cosines, p.sines, rows.query0, p.seq);
        }
        __syncthreads();
        if (given && threadIdx.x == THREADS - 32) give_turn(given, number + 1);
        int turn_seen = 0;
        // The next step's copies are started between the first products of this one.
        bool loads = STAGES > 1 && step + 1 < steps;
        Loading loading = next_step(step + 1);
        if (loads) load_values(loading);
        auto load_some = [&](int k) {
            constexpr int STEPS = HEAD_DIM / 16;
#pragma unroll
            for (int pass = PASSES * k / STEPS; pass < PASSES * (k + 1) / STEPS; pass++)
                if (loads) loading.queries.pass(pass), loading.slants.pass(pass);
        };

        bool seen = key < rows.query0 + TILE_ROWS;  // by any of these queries
        u32 changes[2][2][2][4];
        if (!seen) {
#pragma unroll
            for (int k = 0; k < HEAD_DIM / 16; k++) load_some(k);
        } else {
#pragma unroll
            for (int half = 0; half < (SHARED_KEYS ? 1 : 2); half++) {
                int over = (SHARED_KEYS ? side : half) * 32;
                u32 weights[2][2][4];
                take_changes(weights, changes[half], rows, k_tile, v_tile, own_row, over, key, scale, [&](int k) {
                    if (half == 0) load_some(k);
                    // Queried early, so that the answer is there when it is needed.
                    if (half == (SHARED_KEYS ? 0 : 1) && k == HEAD_DIM / 16 - 1 && !ANY_ORDER && number && threadIdx.x == 0) turn_seen = peek_turn(turns);
                });
                if constexpr (SHARED_KEYS) write_weights(weights, own_weights, over);
                else add_couples(dv, weights, rows.dout_tile, over, 0);
                write_weights(changes[half], own_changes, over);
            }
        }
        if (!ANY_ORDER && number && threadIdx.x == 0 && turn_seen != number)
            while (read_turn(turns) != number) __nanosleep(20);
        __syncthreads();  // the changes of all keys are complete, and it is this block's turn

        float sums[COUPLES][2][2][4];
#pragma unroll
        for (int c = 0; c < COUPLES * 4; c++) {
            float4 before = !ANY_ORDER && number ? read_handed_on(partial + c * THREADS) : make_float4(0, 0, 0, 0);
            float(&sum)[4] = sums[c / 4][c / 2 % 2][c % 2];
            sum[0] = before.x, sum[1] = before.y, sum[2] = before.z, sum[3] = before.w;
        }
        if (seen) {
            if constexpr (SHARED_KEYS) {
                add_passed_couples(dv, own_weights, rows.dout_tile, couple);
                add_passed_couples(dk, own_changes, rows.q_tile, couple);
            } else {
#pragma unroll
                for (int half = 0; half < 2; half++) add_couples(dk, changes[half], rows.q_tile, half * 32, 0);
            }
        }

        // dq += changes^T * k, over the keys that these queries see.
        int queries = warp % 2 * 32, column = warp / 2, seen_keys = min(KEYS, rows.query0 + TILE_ROWS - block0);
#pragma unroll (SHARED_KEYS ? KEY_TILES : 1)
        for (int key_tile = 0; key_tile < KEY_TILES; key_tile++) {
            if (key_tile * TILE_ROWS >= seen_keys) continue;
#pragma unroll
            for (int k = 0; k < TILE_ROWS / 16; k++) {
                u32 left[2][4];
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    int row = 16 * k + lane / 16 * 8 + lane % 8, chunk = queries / 8 + 2 * m + lane / 8 % 2;
                    read_matrices_transposed(left[m], changes_tile + key_tile * 8192 + row * 128 + ((chunk ^ (row & 7)) << 4));
                }
#pragma unroll
                for (int c = 0; c < COUPLES; c++) {
                    int part = min(column + c * COLUMN_WARPS, PARTS / 2 - 1);
                    u32 right[4];
                    read_across(right, tiles + key_tile * TILE_BYTES, 16 * k, part, part + PARTS / 2);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        multiply_add(sums[c][0][m], left[m], right[0], right[1]);
                        multiply_add(sums[c][1][m], left[m], right[2], right[3]);
                    }
                }
            }
        }
        if (ANY_ORDER) {
#pragma unroll
            for (int c = 0; c < COUPLES * 4; c++) {
                float(&sum)[4] = sums[c / 4][c / 2 % 2][c % 2];
                add_to(partial + c * THREADS, make_float4(sum[0], sum[1], sum[2], sum[3]));
            }
        } else if (query_tile / KEY_TILES != number) {
#pragma unroll
            for (int c = 0; c < COUPLES * 4; c++) {
                float(&sum)[4] = sums[c / 4][c / 2 % 2][c % 2];
                hand_on(partial + c * THREADS, make_float4(sum[0], sum[1], sum[2], sum[3]));
            }
            given = turns;
        } else {
            given = nullptr;
            store_queries(sums, p, b, h, rows.query0);
        }
        if (STAGES == 1 && step + 1 < steps) {
            __syncthreads();
#pragma unroll
            for (int pass = 0; pass < PASSES; pass++) loading.queries.pass(pass), loading.slants.pass(pass);
            load_values(loading);
        }
    }
    __syncthreads();
    if (given && threadIdx.x == 0) give_turn(given, number + 1);
    bf16* dk_head = p.dk + (size_t)b * p.seq * p.lddk + kv * HEAD_DIM;
    bf16* dv_head = p.dv + (size_t)b * p.seq * p.lddv + kv * HEAD_DIM;
    store_keys(dk, couple, p.scale, dk_head, p.lddk, key, p.seq, p.cosines, p.sines);
    store_keys(dv, couple, 1, dv_head, p.lddv, key, p.seq, nullptr, nullptr);
}

#define BACKWARD_PARAMETERS                                                                                            \
    const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out, const bf16 *dout, const float *lse, float *delta, bf16 *dq, \
        bf16 *dk, bf16 *dv, const float *cosines, const float *sines, int batch, int heads, int kv_heads, int seq, int ldq, \
        int ldk, int ldv, int ldo, int lddo, int lddq, int lddk, int lddv, int rotated, float scale, float4 *partial, int *turns
#define BACKWARD_ARGUMENTS                                                                                             \
    Backward { q, k, v, out, dout, lse, delta, dq, dk, dv, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, \
               lddo, lddq, lddk, lddv, rotated, scale, partial, turns }

extern "C" __global__ void __launch_bounds__(THREADS, SHARED_KEYS ? 1 : 2) flash_backward_mma_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    backward(BACKWARD_ARGUMENTS);
}

// delta = sum(dout * out) per row, eight lanes each; clears the tickets and turns.
extern "C" __global__ void __launch_bounds__(256) flash_delta_mma_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    int i = blockIdx.x * 256 + threadIdx.x, row = i / 8 / heads, h = i / 8 % heads, rows = batch * seq;
    if (i <= batch * heads * ((seq + TILE_ROWS - 1) / TILE_ROWS)) turns[i] = 0;
    if (ANY_ORDER) {
        size_t all = (size_t)batch * heads * ((seq + TILE_ROWS - 1) / TILE_ROWS) * (COUPLES * 4) * THREADS;
        for (size_t at = i; at < all; at += (size_t)gridDim.x * 256) partial[at] = make_float4(0, 0, 0, 0);
    }
    float sum = dot_rows<8>(out + h * HEAD_DIM, ldo, dout + h * HEAD_DIM, lddo, min(row, rows - 1));
    if (i % 8 == 0 && row < rows) delta[((size_t)(row / seq) * heads + h) * seq + row % seq] = sum;
}

#if ANY_ORDER
// dq from its sums, one block per head and tile of queries.
extern "C" __global__ void __launch_bounds__(THREADS) flash_queries_mma_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    Backward p = BACKWARD_ARGUMENTS;
    int query_tiles = (seq + TILE_ROWS - 1) / TILE_ROWS, pair = blockIdx.x / query_tiles, tile = blockIdx.x % query_tiles;
    float4* from = partial_of(p, blockIdx.x);
    float sums[COUPLES][2][2][4];
#pragma unroll
    for (int c = 0; c < COUPLES * 4; c++) {
        float4 all = from[c * THREADS];
        float(&sum)[4] = sums[c / 4][c / 2 % 2][c % 2];
        sum[0] = all.x, sum[1] = all.y, sum[2] = all.z, sum[3] = all.w;
    }
    store_queries(sums, p, pair / heads, pair % heads, tile * TILE_ROWS);
}
#endif
