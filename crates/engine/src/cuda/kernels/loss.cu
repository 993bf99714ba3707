// Cross-entropy of rows of logits with its gradient, softmax of causal scores, table look-up and its gradient.

// One block per row. `losses[row]` = logsumexp - logit of the target; `grad`, if given, becomes (softmax -
// onehot(target)) * dloss / tokens, and may alias the logits. Maximum and sum are found in one pass: a thread's sum is
// relative to its own maximum so far.
template <int W>
__device__ void cross_entropy_rows(const ACT* logits, const int* targets, const float* dloss, float* losses, ACT* grad, u32 cols,
                                   float tokens) {
    __shared__ float room[32];
    const ACT* row = logits + (u64)blockIdx.x * cols;
    int target = targets[blockIdx.x];
    float own = -3.4e38f, sum = 0.0f;
    for (u32 i = threadIdx.x * W; i < cols; i += blockDim.x * W) {
        auto pack = load<W>(row + i);
        float most = own;
#pragma unroll
        for (int k = 0; k < W; k++) most = fmaxf(most, to_float(pack.x[k]));
        if (most > own) {
            sum *= __expf(own - most);
            own = most;
        }
#pragma unroll
        for (int k = 0; k < W; k++) sum += __expf(to_float(pack.x[k]) - own);
    }
    float top = row_max(own, room);
    sum = row_sum(sum * __expf(own - top), room);
    if (threadIdx.x == 0 && losses) losses[blockIdx.x] = logf(sum) + top - to_float(row[target]);
    if (!grad) return;
    __syncthreads();
    float share = *dloss / tokens, scale = share / sum;
    for (u32 i = threadIdx.x * W; i < cols; i += blockDim.x * W) {
        auto pack = load<W>(row + i);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float made = __expf(to_float(pack.x[k]) - top) * scale;
            pack.x[k] = from_float<ACT>(i + k == target ? made - share : made);
        }
        store<W>(grad + (u64)blockIdx.x * cols + i, pack);
    }
}
#define CROSS_ENTROPY(name, W)                                                                                            \
    extern "C" __global__ void name(const ACT* logits, const int* targets, const float* dloss, float* losses, ACT* grad,  \
                                    u32 cols, float tokens) {                                                             \
        in_turn();                                                                                                        \
        cross_entropy_rows<W>(logits, targets, dloss, losses, grad, cols, tokens);                                        \
    }
CROSS_ENTROPY(cross_entropy_v, WIDE)
CROSS_ENTROPY(cross_entropy_s, 1)

// out[0] = the sum of n values / n, by one block of 1024 threads, always in the same order.
extern "C" __global__ void mean(const float* x, float* out, u32 n) {
    in_turn();
    __shared__ double part[1024];
    double total = 0.0;
    for (u32 i = threadIdx.x; i < n; i += 1024) total += x[i];
    part[threadIdx.x] = total;
    for (u32 half = 512; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[0] = (float)(part[0] / n);
}

// Row r of `seq` scores sees its first r % seq + 1 entries; the rest becomes zero. One block per row.
extern "C" __global__ void causal_softmax(const ACT* scores, ACT* out, u32 seq) {
    in_turn();
    __shared__ float room[32];
    u64 start = (u64)blockIdx.x * seq;
    u32 seen = blockIdx.x % seq + 1;
    float top = -3.4e38f, sum = 0.0f;
    for (u32 i = threadIdx.x; i < seen; i += blockDim.x) top = fmaxf(top, to_float(scores[start + i]));
    top = row_max(top, room);
    for (u32 i = threadIdx.x; i < seen; i += blockDim.x) sum += __expf(to_float(scores[start + i]) - top);
    float scale = 1.0f / row_sum(sum, room);
    for (u32 i = threadIdx.x; i < seq; i += blockDim.x)
        out[start + i] = from_float<ACT>(i < seen ? __expf(to_float(scores[start + i]) - top) * scale : 0.0f);
}

// ds = p (dp - sum(p dp)); zero where masked.
extern "C" __global__ void causal_softmax_grad(const ACT* p, const ACT* dp, ACT* ds, u32 seq) {
    in_turn();
    __shared__ float room[32];
    u64 start = (u64)blockIdx.x * seq;
    u32 seen = blockIdx.x % seq + 1;
    float dot = 0.0f;
    for (u32 i = threadIdx.x; i < seen; i += blockDim.x) dot += to_float(p[start + i]) * to_float(dp[start + i]);
    dot = row_sum(dot, room);
    for (u32 i = threadIdx.x; i < seq; i += blockDim.x)
        ds[start + i] = from_float<ACT>(i < seen ? to_float(p[start + i]) * (to_float(dp[start + i]) - dot) : 0.0f);
}

extern "C" __global__ void embedding(const int* ids, const ACT* table, ACT* out, u32 cols) {
    in_turn();
    const ACT* row = table + (u64)ids[blockIdx.x] * cols;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) out[(u64)blockIdx.x * cols + i] = row[i];
}

// Row v of the gradient = the sum of dy over the tokens with id v, in their order. A block of 256 threads handles a row
// and 256 columns of it. Tokens are scanned 256 at a time; the matching ones are listed in order.
extern "C" __global__ void embedding_grad(const int* ids, const ACT* dy, ACT* out, u32 tokens, u32 cols) {
    in_turn();
    __shared__ u32 matches[256];
    __shared__ u32 in_warp[8];
    int wanted = blockIdx.x;
    u32 col = blockIdx.y * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float total = 0.0f;
    for (u32 first = 0; first < tokens; first += 256) {
        u32 token = first + threadIdx.x;
        bool match = token < tokens && ids[token] == wanted;
        u32 ballot = __ballot_sync(0xffffffff, match);
        if (lane == 0) in_warp[warp] = __popc(ballot);
        __syncthreads();
        u32 before = 0, count = 0;
        for (u32 w = 0; w < 8; w++) {
            if (w < warp) before += in_warp[w];
            count += in_warp[w];
        }
        if (match) matches[before + __popc(ballot & ((1u << lane) - 1))] = token;
        __syncthreads();
        if (col < cols)
            for (u32 k = 0; k < count; k++) total += to_float(dy[(u64)matches[k] * cols + col]);
        __syncthreads();
    }
    if (col < cols) out[(u64)wanted * cols + col] = from_float<ACT>(total);
}

// The same for a table of many rows with few tokens each: a block of 256 threads handles 32 rows. The tokens of these
// rows are listed in order; if they do not fit the list, each row scans all tokens again.
template <int W>
__device__ void embedding_grad_rows(const int* ids, const ACT* dy, ACT* out, u32 tokens, u32 cols, u32 table_rows) {
    constexpr u32 ROOM = 2048, NUMBER = (1u << 27) - 1;
    __shared__ u32 list[ROOM];
    __shared__ u32 in_warp[8];
    u32 base = blockIdx.x * 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32, listed = 0;
    for (u32 first = 0; first < tokens; first += 256) {
        u32 token = first + threadIdx.x, row = token < tokens ? (u32)ids[token] - base : 32;
        bool match = row < 32;
        u32 ballot = __ballot_sync(0xffffffff, match);
        if (lane == 0) in_warp[warp] = __popc(ballot);
        __syncthreads();
        u32 before = listed;
        for (u32 w = 0; w < 8; w++) {
            if (w < warp) before += in_warp[w];
            listed += in_warp[w];
        }
        u32 place = before + __popc(ballot & ((1u << lane) - 1));
        if (match && place < ROOM) list[place] = row << 27 | token;
        __syncthreads();
    }
    for (u32 row = warp; row < 32 && base + row < table_rows; row += 8) {
        for (u32 col = lane * W; col < cols; col += 32 * W) {
            float total[W];
#pragma unroll
            for (int k = 0; k < W; k++) total[k] = 0.0f;
            for (u32 k = 0; k < (listed <= ROOM ? listed : tokens); k++) {
                bool match = listed <= ROOM ? list[k] >> 27 == row : (u32)ids[k] == base + row;
                if (!match) continue;
                auto pack = load<W>(dy + (u64)(listed <= ROOM ? list[k] & NUMBER : k) * cols + col);
#pragma unroll
                for (int j = 0; j < W; j++) total[j] += to_float(pack.x[j]);
            }
            Pack<ACT, W> made;
#pragma unroll
            for (int k = 0; k < W; k++) made.x[k] = from_float<ACT>(total[k]);
            store<W>(out + (u64)(base + row) * cols + col, made);
        }
    }
}
#define EMBEDDING_GRAD(name, W)                                                                                             \
    extern "C" __global__ void name(const int* ids, const ACT* dy, ACT* out, u32 tokens, u32 cols, u32 table_rows) {        \
        in_turn();                                                                                                          \
        embedding_grad_rows<W>(ids, dy, out, tokens, cols, table_rows);                                                     \
    }
EMBEDDING_GRAD(embedding_grad_many_v, WIDE)
EMBEDDING_GRAD(embedding_grad_many_s, 1)
