"""Wrong on purpose: raises at each moment there is."""

NAME = "planted-raises"
CLASS = "same"


def applies(facts):
    raise ValueError("planted")


def install(hook):
    for moment in (hook.at_first_forward, hook.at_first_step, hook.at_mark):
        moment(fail)
    hook.when_loaded("torch", fail)
    hook.set_and_keep_set(fail)


def fail(*unused):
    raise ValueError("planted")
