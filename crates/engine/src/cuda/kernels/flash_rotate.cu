// Rotates queries and keys in place, once, for attention kernels that then load them as they are.

// q and k in place, 16 bytes and their partners per thread; rotates back if BACK.
template <bool BACK>
__device__ __forceinline__ void rotate_rows(bf16* q, bf16* k, const float* cosines, const float* sines, int batch, int heads, int kv_heads, int seq,
                                            int ldq, int ldk) {
    int i = blockIdx.x * 256 + threadIdx.x, chunk = i % CHUNK_PAIRS, h = i / CHUNK_PAIRS % (heads + kv_heads);
    int row = i / CHUNK_PAIRS / (heads + kv_heads);
    if (row >= batch * seq) return;
    bf16* at = (h < heads ? q + (size_t)row * ldq + h * HEAD_DIM : k + (size_t)row * ldk + (h - heads) * HEAD_DIM) + chunk * 8;
    int position = row % seq * (HEAD_DIM / 2) + chunk * 8;
    uint4 first = *(const uint4*)at, second = *(const uint4*)(at + HEAD_DIM / 2);
    // Swapping the two halves rotates by the opposite angle.
    if (BACK) rotate_chunks(second, first, cosines + position, sines + position);
    else rotate_chunks(first, second, cosines + position, sines + position);
    *(uint4*)at = first;
    *(uint4*)(at + HEAD_DIM / 2) = second;
}

#define ROTATE_PARAMETERS \
    bf16 *q, bf16 *k, const float *cosines, const float *sines, int batch, int heads, int kv_heads, int seq, int ldq, int ldk
extern "C" __global__ void __launch_bounds__(256) flash_rotate_bf16(ROTATE_PARAMETERS) {
    in_turn();
    rotate_rows<false>(q, k, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk);
}
extern "C" __global__ void __launch_bounds__(256) flash_rotate_back_bf16(ROTATE_PARAMETERS) {
    in_turn();
    rotate_rows<true>(q, k, cosines, sines, batch, heads, kv_heads, seq, ldq, ldk);
}
