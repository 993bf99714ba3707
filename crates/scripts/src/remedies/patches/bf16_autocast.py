def run_in_bf16(module):
    """Runs the module under autocast to bf16, and hands out its results in fp32."""
    inner = torch.autocast("{device}", dtype=torch.bfloat16)(module.forward)

    def in_fp32(value):
        if isinstance(value, torch.Tensor):
            return value.float() if value.dtype == torch.bfloat16 else value
        if isinstance(value, dict):
            for key in list(value):
                value[key] = in_fp32(value[key])
        elif type(value) in (list, tuple):
            return type(value)(in_fp32(item) for item in value)
        return value

    @functools.wraps(module.forward)
    def forward(*arguments, **named):
        return in_fp32(inner(*arguments, **named))

    module.forward = forward
