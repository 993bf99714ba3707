// Cross-entropy of rows of logits with its gradient, softmax of causal scores, table look-up and its gradient.

// A block a row. `losses[row]` = log sum exp - logit of the target; where `grad` is given it becomes
// (softmax - one at the target) * dloss / tokens, and may be the logits themselves.
extern "C" __global__ void cross_entropy(const ACT* logits, const int* targets, const float* dloss, float* losses, ACT* grad,
                                         u32 cols, float tokens) {
    in_turn();
    __shared__ float room[32];
    const ACT* row = logits + (u64)blockIdx.x * cols;
    int target = targets[blockIdx.x];
    float top = -3.4e38f;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) top = fmaxf(top, to_float(row[i]));
    top = row_max(top, room);
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) sum += __expf(to_float(row[i]) - top);
    sum = row_sum(sum, room);
    if (threadIdx.x == 0 && losses) losses[blockIdx.x] = logf(sum) + top - to_float(row[target]);
    if (!grad) return;
    __syncthreads();
    float share = *dloss / tokens, scale = share / sum;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
        float made = __expf(to_float(row[i]) - top) * scale;
        grad[(u64)blockIdx.x * cols + i] = from_float<ACT>(i == target ? made - share : made);
    }
}

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

// Row r of `seq` scores sees its first r % seq + 1 entries; the rest becomes zero. A block a row.
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

// Row v of the gradient = the sum of dy over the tokens that name v, in their order. A block of 256 threads for a row and
// 256 columns of it. Tokens are looked through 256 at a time; those that match are listed in order.
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
