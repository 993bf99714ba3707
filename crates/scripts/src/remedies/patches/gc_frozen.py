@functools.cache
def freeze_lasting_objects():
    """After the first step: leaves objects that live for the whole training out of garbage collection."""
    if gc.isenabled():
        gc.collect()
        gc.freeze()
        first, *others = gc.get_threshold()
        if 0 < first < 10_000:
            gc.set_threshold(10_000, *others)


register_optimizer_step_post_hook(lambda *unused: freeze_lasting_objects())
