// Chooses what a step updates: from sums of squares to the rates of every leaf, without a read by the host.
//
// Compiled without fused multiply-adds: bias corrections match the host's bit for bit.

// rule: the host's numbers
#define TOP_K 0
#define ALL 1
#define PATH 2
#define RANDOM 3

#define THREADS 1024
#define NONE 0xffffffffu
#define ROOT 0

// One warp per leaf: the sum of the partial sums of its chunks, which start at starts[leaf].
extern "C" __global__ void leaf_squares(const float* partial, const u64* starts, float* squares, u32 leaves) {
    in_turn();
    u32 leaf = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (leaf >= leaves) return;
    double total = 0.0;
    for (u64 i = starts[leaf] + lane; i < starts[leaf + 1]; i += 32) total += partial[i];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffff, total, other);
    if (lane == 0) squares[leaf] = (float)total;
}

// A leaf's random draw at a step, computed as on the host.
__device__ __forceinline__ u32 lot(u64 seed, u32 step, u32 leaf) {
    u64 word = seed ^ (((u64)step << 32 | leaf) * 0x9E3779B97F4A7C15ull);
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ word >> 31) * 0x94D049BB133111EBull;
    return (u32)(word ^ word >> 29) ^ (u32)(word >> 32);
}

// Larger norms rank higher, and NaN ranks highest.
__device__ __forceinline__ u32 rank_of_norm(float squared) { return __float_as_uint(squared) & 0x7fffffffu; }

struct Keys {
    const float* norms;
    u64 seed;
    u32 rule, step;
    __device__ __forceinline__ u32 of(u32 leaf) const {
        return rule == RANDOM ? lot(seed, step, leaf) : rank_of_norm(norms[leaf]);
    }
};

// Number of leaves that rank before this one: larger keys, and on a tie the earlier leaf.
__device__ u32 place_of(const Keys& keys, u32 leaf, u32 leaves) {
    u32 own = keys.of(leaf), before = 0;
    for (u32 other = 0; other < leaves; other++) {
        u32 key = keys.of(other);
        before += key > own || (key == own && other < leaf);
    }
    return before;
}

// The leaf with the largest key over all threads of the block; ties go to the first.
__device__ u32 largest(u64 key, u32 leaf) {
    __shared__ u64 keys[THREADS];
    __shared__ u32 leaves[THREADS];
    __syncthreads();
    keys[threadIdx.x] = key;
    leaves[threadIdx.x] = leaf;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        u32 other = threadIdx.x + half;
        if (threadIdx.x < half && (keys[other] > keys[threadIdx.x] ||
                                   (keys[other] == keys[threadIdx.x] && leaves[other] < leaves[threadIdx.x]))) {
            keys[threadIdx.x] = keys[other];
            leaves[threadIdx.x] = leaves[other];
        }
    }
    __syncthreads();
    return leaves[0];
}

// A row of the tree: branch, part and parent of a leaf.
struct Place {
    int branch, part, parent;
};

// Descends from the root to the child with the largest norm: branch, part, leaf. Levels 0 and 1 compare the sums of
// their groups.
__device__ u32 end_of_path(const float* norms, const Place* tree, u32 leaves) {
    u32 found = NONE;
    for (int level = 0; level < 3; level++) {
        int branch = level > 0 ? tree[found].branch : 0, part = level > 1 ? tree[found].part : 0;
        u64 best = 0;
        u32 mine = NONE;
        for (u32 leaf = threadIdx.x; leaf < leaves; leaf += THREADS) {
            Place own = tree[leaf];
            if ((level > 0 && own.branch != branch) || (level > 1 && own.part != part)) continue;
            double sum = 0.0;
            for (u32 other = 0; other < leaves; other++) {
                Place place = tree[other];
                bool together = level == 0   ? place.branch == own.branch
                                : level == 1 ? place.branch == branch && place.part == own.part
                                             : other == leaf;
                if (together) sum += norms[other];
            }
            u64 key = (u64)__double_as_longlong(sum) & 0x7fffffffffffffffull;
            if (mine == NONE || key > best) {
                best = key;
                mine = leaf;
            }
        }
        found = largest(best, mine);
    }
    return found;
}

__device__ __forceinline__ float share_on_path(const Place* tree, u32 leaf, u32 end) {
    Place own = tree[leaf], there = tree[end];
    if (leaf == end) return 1.0f;
    if (own.parent == there.parent) return 0.15f;
    return there.parent != ROOT && own.branch == there.branch ? 0.05f : 0.0f;
}

// Among blocks, a row of the tree is block, parent and level, stored in the same fields.
__device__ __forceinline__ int block_at(const Place* tree, u32 leaf) { return tree[leaf].branch; }
__device__ __forceinline__ int parent_at(const Place* tree, u32 leaf) { return tree[leaf].part; }
__device__ __forceinline__ int level_at(const Place* tree, u32 leaf) { return tree[leaf].parent; }

// The parameters of a block are contiguous: the first of this leaf's block, and the one after its last.
__device__ u32 first_of_block(const Place* tree, u32 leaf) {
    while (leaf > 0 && block_at(tree, leaf - 1) == block_at(tree, leaf)) leaf--;
    return leaf;
}
__device__ u32 end_of_block(const Place* tree, u32 first, u32 leaves) {
    u32 end = first + 1;
    while (end < leaves && block_at(tree, end) == block_at(tree, first)) end++;
    return end;
}

__device__ u64 key_of_block(const Keys& keys, const Place* tree, u32 first, u32 end) {
    if (keys.rule == RANDOM) return lot(keys.seed, keys.step, (u32)block_at(tree, first));
    double sum = 0.0;
    for (u32 leaf = first; leaf < end; leaf++) sum += keys.norms[leaf];
    return (u64)__double_as_longlong(sum) & 0x7fffffffffffffffull;
}

// Number of blocks that rank before the one that begins here.
__device__ u32 place_of_block(const Keys& keys, const Place* tree, u32 own_first, u32 leaves) {
    u64 own = key_of_block(keys, tree, own_first, end_of_block(tree, own_first, leaves));
    u32 before = 0;
    for (u32 first = 0; first < leaves;) {
        u32 end = end_of_block(tree, first, leaves);
        if (block_at(tree, first) != 0) {
            u64 key = key_of_block(keys, tree, first, end);
            before += key > own || (key == own && first < own_first);
        }
        first = end;
    }
    return before;
}

// Descends from the root to the child whose own norm is the largest; returns the first parameter of the final block.
__device__ u32 end_of_block_path(const Keys& keys, const Place* tree, u32 leaves) {
    u32 found = NONE;
    for (int level = 0;; level++) {
        int parent = found == NONE ? 0 : block_at(tree, found);
        u64 best = 0;
        u32 mine = NONE;
        for (u32 leaf = threadIdx.x; leaf < leaves; leaf += THREADS) {
            if (block_at(tree, leaf) == 0 || first_of_block(tree, leaf) != leaf) continue;
            if (parent_at(tree, leaf) != parent || level_at(tree, leaf) != level) continue;
            u64 key = key_of_block(keys, tree, leaf, end_of_block(tree, leaf, leaves));
            if (mine == NONE || key > best) {
                best = key;
                mine = leaf;
            }
        }
        u32 child = largest(best, mine);
        if (child == NONE) return found;
        found = child;
    }
}

__device__ float share_on_block_path(const Place* tree, u32 first, u32 end) {
    if (end == NONE) return 0.0f;
    if (first == end) return 1.0f;
    if (parent_at(tree, first) == parent_at(tree, end)) return 0.15f;
    return level_at(tree, first) == level_at(tree, end) ? 0.05f : 0.0f;
}

__device__ __forceinline__ double power(double base, u64 exponent) {
    double result = 1.0;
    for (;;) {
        if (exponent & 1) result *= base;
        exponent >>= 1;
        if (exponent == 0) return result;
        base *= base;
    }
}

// One block of 1024 threads. out[leaf]: learning rate and bias corrections, zeros if the leaf is not updated.
extern "C" __global__ void choose(const float* const* squared, const float* rates, const int* at, const Place* tree,
                                  float* counts, float* log, float* const* out, u32 leaves, u32 rows, u32 rule,
                                  u32 blocks, u32 count, u64 seed, double beta1, double beta2) {
    in_turn();
    int row = at[0] % (int)rows;
    if (row < 0) row += rows;
    float *shares = log + (u64)row * 2 * leaves, *norms = shares + leaves;
    for (u32 leaf = threadIdx.x; leaf < leaves; leaf += THREADS) norms[leaf] = *squared[leaf];
    __syncthreads();
    Keys keys = {norms, seed, rule, (u32)at[1]};
    u32 end = NONE;
    if (rule == PATH) end = blocks ? end_of_block_path(keys, tree, leaves) : end_of_path(norms, tree, leaves);
    for (u32 leaf = threadIdx.x; leaf < leaves; leaf += THREADS) {
        float share = 1.0f;
        if (rule != ALL && blocks) {
            u32 first = first_of_block(tree, leaf);
            if (block_at(tree, leaf) == 0) share = 1.0f;
            else if (rule == PATH) share = share_on_block_path(tree, first, end);
            else share = place_of_block(keys, tree, first, leaves) < count ? 1.0f : 0.0f;
        }
        else if (rule == PATH) share = share_on_path(tree, leaf, end);
        else if (rule != ALL) share = place_of(keys, leaf, leaves) < count ? 1.0f : 0.0f;
        shares[leaf] = share;
        float* mine = out[leaf];
        if (share == 0.0f) {
            mine[0] = mine[1] = mine[2] = 0.0f;
            continue;
        }
        float t = counts[leaf] + 1.0f;
        counts[leaf] = t;
        mine[0] = rates[0] * share;
        mine[1] = (float)(1.0 - power(beta1, (u64)t));
        mine[2] = (float)sqrt(1.0 - power(beta2, (u64)t));
    }
}
