"""Lets DistributedDataParallel assume that every step has the first step's graph, so that it need not be searched."""

NAME = "ddp-static-graph"
CLASS = "same"


def applies(facts):
    return SHARED.part("remedies/ddp_bucket_view").applies(facts)


def install(hook):
    replace = SHARED.part("remedies/ddp_bucket_view").replace_when_loaded
    replace(hook, "static_graph", "told that its graph is static")
