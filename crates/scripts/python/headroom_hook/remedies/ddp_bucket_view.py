"""Makes DistributedDataParallel's gradients views of its buckets: no copy before the all-reduce, and less memory."""
import functools

NAME = "ddp-bucket-view"
CLASS = "same"
SETTING = "gradient_as_bucket_view"
WORDS = "told to keep gradients in its buckets"


def applies(facts):
    if not any(module.get("distributed") for module in facts["modules"]):
        return "it trains in one process"
    return None


def install(hook):
    replace_when_loaded(hook, SETTING, WORDS)


def replace_when_loaded(hook, setting, words):
    hook.nothing("no DistributedDataParallel is made")
    hook.when_loaded("torch.nn.parallel.distributed", lambda module: replace(hook, module, setting, words))


def replace(hook, module, setting, words):
    original = module.DistributedDataParallel.__init__

    @functools.wraps(original)
    def init(self, *arguments, **named):
        if named.get(setting):
            hook.nothing(f"{setting} is set already")
        elif setting == "static_graph" and named.get("find_unused_parameters"):
            hook.nothing("the script looks for unused parameters: its graph may change")
        else:
            named[setting] = True
            hook.did("DistributedDataParallel", words)
        original(self, *arguments, **named)

    module.DistributedDataParallel.__init__ = init
