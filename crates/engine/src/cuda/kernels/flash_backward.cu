// Tiled causal attention on Hopper's tensor cores: the gradients of queries, and of keys and values.


struct Backward {
    const bf16 *q, *k, *v, *out, *dout;
    const float* lse;
    float* delta;
    bf16 *dq, *dk, *dv;
    const float *cosines, *sines;
    int batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv, rotated;
    float scale;
};

// dq of GROUPS tiles of queries; writes delta = sum(dout * out) per row if p.delta is given.
template <int GROUPS>
__device__ __forceinline__ void backward_q(const Backward& p, int block) {
    constexpr int THREADS = 128 * GROUPS, QUERIES = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = group_of_thread();
    int pairs = p.batch * p.heads, pair = block % pairs;
    int b = pair / p.heads, h = pair % p.heads, kv = h * p.kv_heads / p.heads;
    int block0 = ((p.seq + QUERIES - 1) / QUERIES - 1 - block / pairs) * QUERIES;
    const bf16* q = p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM;
    const bf16* k = p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM;
    const bf16* v = p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM;
    const bf16* out = p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM;
    const bf16* dout = p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM;
    int steps = (min(block0 + QUERIES, p.seq) + TILE_ROWS - 1) / TILE_ROWS;
    int row0 = block0 + group * TILE_ROWS;
    u32 q_tile = tiles + group * 2 * TILE_BYTES, dout_tile = q_tile + TILE_BYTES, stages = tiles + GROUPS * 2 * TILE_BYTES;
    bool turn = p.cosines && !p.rotated;
    float scale = p.scale * LOG2_E;

#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        load_tile<THREADS>(tiles + g * 2 * TILE_BYTES, q, p.ldq, block0 + g * TILE_ROWS, p.seq);
        load_tile<THREADS>(tiles + (g * 2 + 1) * TILE_BYTES, dout, p.lddo, block0 + g * TILE_ROWS, p.seq);
    }
    load_tile<THREADS>(stages, k, p.ldk, 0, p.seq);
    load_tile<THREADS>(stages + TILE_BYTES, v, p.ldv, 0, p.seq);

    float lse[2], delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = row0 + row_of_thread() + r * 8;
        lse[r] = row < p.seq ? p.lse[(size_t)pair * p.seq + row] * LOG2_E : 0;
        delta[r] = dot_rows<4>(out, p.ldo, dout, p.lddo, min(row, p.seq - 1));
        if (p.delta && threadIdx.x % 4 == 0 && row < p.seq) p.delta[(size_t)pair * p.seq + row] = delta[r];
    }
    float sums[OUTPUTS];
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) sums[i] = 0;

#ifdef QD_IN_REGISTERS
    u32 queries[HEAD_DIM / 4], slants[HEAD_DIM / 4];
#else
    u32 queries = q_tile, slants = dout_tile;
#endif
    for (int step = 0; step < steps; step++) {
        u32 k_tile = stages + (step & 1) * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
        wait_copies();
        if (turn) {
            if (step == 0) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
            }
            rotate_tile<THREADS>(k_tile, p.cosines, p.sines, step * TILE_ROWS, p.seq);
        }
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 1 < steps) {
            u32 next = stages + ((step + 1) & 1) * 2 * TILE_BYTES;
            load_tile<THREADS>(next, k, p.ldk, (step + 1) * TILE_ROWS, p.seq);
            load_tile<THREADS>(next + TILE_BYTES, v, p.ldv, (step + 1) * TILE_ROWS, p.seq);
        }
        if (step * TILE_ROWS > row0) continue;
#ifdef QD_IN_REGISTERS
        if (step == 0) {
            read_fragments(queries, q_tile);
            read_fragments(slants, dout_tile);
        }
#endif

        float scores[SCORES], slopes[SCORES];  // q k^T and dout v^T
        begin_products();
        multiply_tiles(scores, queries, k_tile);
        commit_products();
        multiply_tiles(slopes, slants, v_tile);
        commit_products();
        wait_products<1>(scores);
#pragma unroll
        for (int i = 0; i < SCORES; i++) scores[i] = exp2_fast(scores[i] * scale - lse[i / 2 % 2]);
        if (step * TILE_ROWS == row0) {
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                if (column_of(i) > row_of_thread() + (i / 2 % 2) * 8) scores[i] = 0;
        }
        wait_products<0>(slopes);
        u32 weights[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 2)
            weights[i / 2] = pack(scores[i] * (slopes[i] - delta[i / 2 % 2]), scores[i + 1] * (slopes[i + 1] - delta[i / 2 % 2]));
        begin_products();
        add_weighted_rows(sums, weights, k_tile);
        commit_products();
        wait_products<0>(sums);
    }
    if (p.cosines) rotate_back(sums, p.cosines, p.sines, row0, p.seq);
    group_barrier(group);
    store_tile(sums, p.scale, p.scale, q_tile, p.dq + (size_t)b * p.seq * p.lddq + h * HEAD_DIM, p.lddq, row0, p.seq);
}

// dk and dv of GROUPS tiles of keys of one kv head, over the query heads that share it. Scores are computed transposed
// (keys down, queries across), so that the product's weights already have the layout of the next operand.
template <int GROUPS>
__device__ __forceinline__ void backward_kv(const Backward& p, int block) {
    constexpr int THREADS = 128 * GROUPS, KEYS = TILE_ROWS * GROUPS;
    u32 tiles = shared_tiles();
    int group = group_of_thread();
    int pairs = p.batch * p.kv_heads, pair = block % pairs;
    int b = pair / p.kv_heads, kv = pair % p.kv_heads, sharing = p.heads / p.kv_heads;
    int block0 = block / pairs * KEYS, row0 = block0 + group * TILE_ROWS;  // the first keys have the most queries
    int first = block0 / TILE_ROWS, per_head = (p.seq + TILE_ROWS - 1) / TILE_ROWS - first, steps = per_head * sharing;
    u32 k_tile = tiles + group * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
    u32 stages = tiles + GROUPS * 2 * TILE_BYTES, rows = stages + 4 * TILE_BYTES;  // rows: per stage 64 lse, 64 delta
    bool turn = p.cosines && !p.rotated;
    float scale = p.scale * LOG2_E;

    int loading_head = 0, loading_tile = 0, query_tile = 0;  // counters instead of divisions of the step
    auto load_step = [&](int step) {
        int h = kv * sharing + loading_head, query0 = (first + loading_tile) * TILE_ROWS, i = threadIdx.x;
        if (++loading_tile == per_head) loading_tile = 0, loading_head++;
        u32 stage = stages + (step & 1) * 2 * TILE_BYTES, values = rows + (step & 1) * 512;
        const bf16* dout = p.dout + (size_t)b * p.seq * p.lddo + h * HEAD_DIM;
        load_tile<THREADS>(stage, p.q + (size_t)b * p.seq * p.ldq + h * HEAD_DIM, p.ldq, query0, p.seq);
        load_tile<THREADS>(stage + TILE_BYTES, dout, p.lddo, query0, p.seq);
        // Past the end lse = delta = 0 is harmless: q and dout are zeros there, and so are their contributions.
        size_t row = ((size_t)b * p.heads + h) * p.seq + min(query0 + i % 64, p.seq - 1);
        if (i < 64) copy4(values + i * 4, p.lse + row, query0 + i < p.seq ? 4 : 0);
        if (p.delta) {
            if (i >= 64 && i < 128) copy4(values + i * 4, p.delta + row, query0 + i - 64 < p.seq ? 4 : 0);
        } else if (i < 128) {
            int query = query0 + i / 2;
            float delta = dot_rows<2>(p.out + (size_t)b * p.seq * p.ldo + h * HEAD_DIM, p.ldo, dout, p.lddo, min(query, p.seq - 1));
            if (query >= p.seq) delta = 0;
            if (i % 2 == 0) asm volatile("st.shared.f32 [%0], %1;" ::"r"(values + 256 + i * 2), "f"(delta) : "memory");
        }
    };
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        load_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.k + (size_t)b * p.seq * p.ldk + kv * HEAD_DIM, p.ldk, block0 + g * TILE_ROWS, p.seq);
        load_tile<THREADS>(tiles + (g * 2 + 1) * TILE_BYTES, p.v + (size_t)b * p.seq * p.ldv + kv * HEAD_DIM, p.ldv, block0 + g * TILE_ROWS, p.seq);
    }
    load_step(0);
    float dk[OUTPUTS], dv[OUTPUTS];
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) dk[i] = dv[i] = 0;

    for (int step = 0; step < steps; step++) {
        int query0 = (first + query_tile) * TILE_ROWS;
        if (++query_tile == per_head) query_tile = 0;
        u32 q_tile = stages + (step & 1) * 2 * TILE_BYTES, dout_tile = q_tile + TILE_BYTES, values = rows + (step & 1) * 512;
        wait_copies();
        if (turn) {
            if (step == 0) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++) rotate_tile<THREADS>(tiles + g * 2 * TILE_BYTES, p.cosines, p.sines, block0 + g * TILE_ROWS, p.seq);
            }
            rotate_tile<THREADS>(q_tile, p.cosines, p.sines, query0, p.seq);
        }
        publish_to_tensor_cores();
        __syncthreads();
        if (step + 1 < steps) load_step(step + 1);
        if (query0 < row0) continue;  // every query comes before this group's keys

        float scores[SCORES], slopes[SCORES];  // k q^T and v dout^T
        begin_products();
        multiply_tiles(scores, k_tile, q_tile);
        commit_products();
        multiply_tiles(slopes, v_tile, dout_tile);
        commit_products();
        wait_products<1>(scores);
        u32 weights[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4) {
            float lse0, lse1;
            asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(lse0), "=f"(lse1) : "r"(values + column_of(i) * 4) : "memory");
            lse0 *= LOG2_E;
            lse1 *= LOG2_E;
#pragma unroll
            for (int j = i; j < i + 4; j++) {
                scores[j] = exp2_fast(scores[j] * scale - (j % 2 ? lse1 : lse0));
                if (query0 == row0 && column_of(j) < row_of_thread() + (j / 2 % 2) * 8) scores[j] = 0;
            }
            weights[i / 2] = pack(scores[i], scores[i + 1]);
            weights[i / 2 + 1] = pack(scores[i + 2], scores[i + 3]);
        }
        begin_products();
        add_weighted_rows(dv, weights, dout_tile);
        commit_products();
        wait_products<1>(slopes);
        u32 changes[SCORES / 2];
#pragma unroll
        for (int i = 0; i < SCORES; i += 4) {
            float delta0, delta1;
            asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(delta0), "=f"(delta1) : "r"(values + 256 + column_of(i) * 4) : "memory");
#ifdef REUSE_PACKED
            scores[i] = low_of(weights[i / 2]), scores[i + 1] = high_of(weights[i / 2]);
            scores[i + 2] = low_of(weights[i / 2 + 1]), scores[i + 3] = high_of(weights[i / 2 + 1]);
#endif
            changes[i / 2] = pack(scores[i] * (slopes[i] - delta0), scores[i + 1] * (slopes[i + 1] - delta1));
            changes[i / 2 + 1] = pack(scores[i + 2] * (slopes[i + 2] - delta0), scores[i + 3] * (slopes[i + 3] - delta1));
        }
        begin_products();
        add_weighted_rows(dk, changes, q_tile);
        commit_products();
        wait_products<0>(dv);
        wait_products<0>(dk);
    }
    if (p.cosines) rotate_back(dk, p.cosines, p.sines, row0, p.seq);
    group_barrier(group);
    store_tile(dk, p.scale, p.scale, k_tile, p.dk + (size_t)b * p.seq * p.lddk + kv * HEAD_DIM, p.lddk, row0, p.seq);
    store_tile(dv, 1, 1, v_tile, p.dv + (size_t)b * p.seq * p.lddv + kv * HEAD_DIM, p.lddv, row0, p.seq);
}

#define BACKWARD_PARAMETERS                                                                                            \
    const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out, const bf16 *dout, const float *lse, float *delta, bf16 *dq, \
        bf16 *dk, bf16 *dv, const float *cosines, const float *sines, int batch, int heads, int kv_heads, int seq, int ldq, \
        int ldk, int ldv, int ldo, int lddo, int lddq, int lddk, int lddv, int rotated, float scale
#define BACKWARD_ARGUMENTS                                                                                             \
    Backward { q, k, v, out, dout, lse, delta, dq, dk, dv, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk, ldv, ldo, \
               lddo, lddq, lddk, lddv, rotated, scale }


#ifndef Q_GROUPS
#define Q_GROUPS 2
#endif
#ifndef Q_BLOCKS
#define Q_BLOCKS (HEAD_DIM > 64 ? 1 : 2)
#endif
#ifndef KV_GROUPS
#define KV_GROUPS 2
#endif
#ifndef KV_BLOCKS
#define KV_BLOCKS 1
#endif
extern "C" __global__ void __launch_bounds__(128 * Q_GROUPS, Q_BLOCKS) flash_backward_q_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    backward_q<Q_GROUPS>(BACKWARD_ARGUMENTS, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(128 * KV_GROUPS, KV_BLOCKS) flash_backward_kv_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    backward_kv<KV_GROUPS>(BACKWARD_ARGUMENTS, blockIdx.x);
}
// Both roles in one launch; the blocks of keys, which have more work each, come first.
extern "C" __global__ void __launch_bounds__(128, HEAD_DIM >= 64 ? 2 : 3) flash_backward_small_bf16(BACKWARD_PARAMETERS) {
    in_turn();
    int key_blocks = (seq + TILE_ROWS - 1) / TILE_ROWS * batch * kv_heads, block = blockIdx.x;
    if (block < key_blocks) backward_kv<1>(BACKWARD_ARGUMENTS, block);
    else backward_q<1>(BACKWARD_ARGUMENTS, block - key_blocks);
}
