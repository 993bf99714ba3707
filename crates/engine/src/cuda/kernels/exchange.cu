// Exchange between a replayed step and the host, through memory that both see: inputs in, results out, and a step
// counter.

struct Input {
    u32* to;
    u32 from, words; // offset in a slot, and length, in words of 4 bytes
};

// Copies the inputs of step `*count` out of its slot of the host's ring. blockIdx.y selects the input.
extern "C" __global__ void take_inputs(const Input* inputs, const u32* ring, const u32* count, u32 slots, u32 slot_words) {
    in_turn();
    Input input = inputs[blockIdx.y];
    const volatile u32* slot = ring + (u64)(*count % slots) * slot_words + input.from;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < input.words; i += gridDim.x * blockDim.x) input.to[i] = slot[i];
}

// Passes the first element of up to two values to the host and counts the step. One thread.
extern "C" __global__ void give_results(const float* a, const float* b, volatile float* results, u32* count, u32 places) {
    in_turn();
    u32 step = *count;
    volatile float* mine = results + (u64)(step % places) * 2;
    mine[0] = a ? *a : 0.0f;
    mine[1] = b ? *b : 0.0f;
    *count = step + 1;
}

// Copies to half precision.
extern "C" __global__ void to_half(const float* from, bf16* to, u64 elements) {
    in_turn();
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += stride) to[i] = from_float<bf16>(from[i]);
}
