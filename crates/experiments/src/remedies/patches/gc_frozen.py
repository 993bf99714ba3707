@functools.cache
def freeze_lasting_objects():
    """After the first step: leaves what lives for the whole training out of garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])


register_optimizer_step_post_hook(lambda *unused: freeze_lasting_objects())
