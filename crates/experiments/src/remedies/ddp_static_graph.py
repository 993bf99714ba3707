"""DistributedDataParallel assumes that all steps have the first step's graph, and need not search it each time."""

NAME = "ddp-static-graph"
CLASS = "same"


def applies(facts):
    return SHARED.part("remedies/ddp_bucket_view").applies(facts)


def install(hook):
    replace = SHARED.part("remedies/ddp_bucket_view").replace_when_loaded
    replace(hook, "static_graph", "told that its graph is static")
