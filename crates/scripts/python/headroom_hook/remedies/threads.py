"""Sets the number of host threads to the process's share of cores and, on a NUMA machine, moves them near the GPU.

Launchers set OMP_NUM_THREADS to 1 for each of several processes, and scripts copy the line. More threads sum in another
order.
"""
import os

NAME = "threads"
CLASS = "rounding"


def applies(facts):
    settings, machine = facts["settings"], facts["machine"]
    share = max(1, machine["cores"] // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if machine["device"] == "cpu":
        if (settings.get("threads") or 0) >= share:
            return f"it uses all {share} cores already"
        return None
    nodes = nodes_of_machine()
    if len(nodes) < 2 and (settings.get("threads") or 0) >= min(share, 4):
        return "its threads suffice, and all memory is equally near"
    return None


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: set_threads(hook, module))


def set_threads(hook, module):
    import torch

    parameter = next(module.parameters(), None)
    if parameter is not None and parameter.is_cuda and hook.value is None:
        move_near(hook, parameter.device)
    share = max(1, SHARED.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    wanted = int(hook.value) if hook.value is not None else share
    before = torch.get_num_threads()
    if before == wanted or (hook.value is None and before > wanted):
        return hook.nothing(f"the number of threads is {before} already")
    torch.set_num_threads(wanted)
    hook.said(f"{wanted} threads in place of {before}")
    return None


def move_near(hook, device):
    """Moves all threads of the process to the cores of the GPU's node, if it may use them."""
    import torch

    nodes = nodes_of_machine()
    if len(nodes) < 2:
        return
    found = torch.cuda.get_device_properties(device)
    address = f"{getattr(found, 'pci_domain_id', 0):04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    with open(f"/sys/bus/pci/devices/{address}/numa_node") as file:
        node = int(file.read())
    near = nodes.get(node, set()) & os.sched_getaffinity(0)
    if not near or near == os.sched_getaffinity(0):
        return
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), near)
    hook.said(f"threads keep to the {len(near)} cores of node {node}, where the GPU is")


def nodes_of_machine():
    """Cores of each NUMA node."""
    folder, nodes = "/sys/devices/system/node", {}
    try:
        for name in os.listdir(folder):
            if name.startswith("node") and name[4:].isdigit():
                with open(f"{folder}/{name}/cpulist") as file:
                    nodes[int(name[4:])] = cores_of(file.read().strip())
    except OSError:
        return {}
    return nodes


def cores_of(text):
    """`0-3,8` as a set."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
