"""Checks of `places`: a note names the lines at which a script makes and calls what remedies change."""
from harness import HERE


def lines_of(place, script):
    """The words of the script from the place's first line to the end of the call."""
    assert place["file"] == script, place
    lines = (HERE / "scripts" / script).read_text().splitlines()[place["line"] - 1 : place["end_line"]]
    last = lines[-1].encode()[: place["end_column"]].decode()
    return "\n".join([*lines[:-1], last]).strip()


def made(places, kind):
    return [one["place"] for one in places[kind]]


def check_places_of_a_plain_loop(place):
    places = place.note("plain.py")["places"]
    assert places["main"] == "plain.py" and places["copies"] == [] and places["arguments"] == []
    (loader,), (optimizer,), (zeros,) = made(places, "loaders"), made(places, "optimizers"), places["zeros"]
    assert loader["direct"] and optimizer["direct"] and zeros["direct"]
    assert lines_of(loader, "plain.py").endswith("= DataLoader(Numbers(), batch_size=8, shuffle=True, collate_fn=collate)")
    assert lines_of(optimizer, "plain.py").startswith("optimizer = torch.optim.AdamW(")
    assert lines_of(zeros, "plain.py") == "optimizer.zero_grad(set_to_none=False)"
    (module,) = places["modules"]
    assert module["expression"] == "model" and module["place"] == optimizer and not module["wraps"], module
    assert module["blocks"] == [["[1:3]"]] and module["frameworks"] == []


def check_places_of_a_class_and_of_other_files(place):
    places = place.note("runner.py")["places"]
    (loader,), (optimizer,), (module,) = made(places, "loaders"), made(places, "optimizers"), places["modules"]
    assert loader["direct"] and lines_of(loader, "runner.py").startswith("super().__init__(\n"), loader
    words = lines_of(optimizer, "runner_optimizer.py")
    assert optimizer["direct"] and words.startswith("return torch.optim.SGD(") and words.endswith(")"), optimizer
    assert module["expression"] == "self.model" and not module["place"]["direct"], module
    assert lines_of(module["place"], "runner.py") == "optimizer = make_optimizer(self.model.parameters())"
    assert module["blocks"] == [["[0]", "[2]", "[3]"]]
    assert [lines_of(one, "runner.py") for one in places["zeros"]] == ["self.model.zero_grad(False)"]


def check_places_of_a_trainer(place):
    places = place.note("trainer.py")["places"]
    (loader,), (optimizer,), (module,) = made(places, "loaders"), made(places, "optimizers"), places["modules"]
    assert loader == optimizer == module["place"] and not loader["direct"]
    assert lines_of(loader, "trainer.py").startswith("Trainer(model=model") and module["expression"] == "model"
    assert module["eager"] == [""] and module["blocks"] == [[".model.layers"]]
    (arguments,) = made(places, "arguments")
    assert arguments["direct"] and lines_of(arguments, "trainer.py").startswith("settings = TrainingArguments("), arguments


def check_places_of_lightning(place):
    places = place.note("lightning_fit.py")["places"]
    assert [one["direct"] for one in made(places, "loaders")] == [True, True]
    (optimizer,), (module,) = made(places, "optimizers"), places["modules"]
    assert lines_of(optimizer, "lightning_fit.py") == "return torch.optim.Adam(self.parameters(), lr=1e-2)"
    assert module["expression"] == "self.net" and module["place"] == optimizer, module
    assert {"kind": "lightning", "expression": "self"} in module["frameworks"]


def check_places_behind_accelerate_are_the_scripts_own(place):
    places = place.note("accelerated.py")["places"]
    (loader,), (optimizer,), (module,) = made(places, "loaders"), made(places, "optimizers"), places["modules"]
    assert loader["direct"] and lines_of(loader, "accelerated.py").endswith("DataLoader(data, batch_size=8, shuffle=True)")
    assert optimizer["direct"] and module["expression"] == "model" and module["place"] == optimizer
    assert {"kind": "accelerate", "expression": "accelerator"} in module["frameworks"]


def check_places_of_attention_copies_and_ranks(place):
    (module,) = place.note("attention.py")["places"]["modules"]
    assert [lines_of(one, "attention.py") for one in module["attentions"]] == [
        "mixed, _ = self.attention(x, x, x)",
        "mixed, _ = self.attentions[i](x, x, x)",
    ]
    places = place.note("pinned.py", "non-blocking-copies")["places"]
    assert [lines_of(one, "pinned.py") for one in places["copies"]] == ['inputs = inputs.to("cpu")']
    assert place.note("pinned.py")["places"]["copies"] == []
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29618"]
    notes = [note for note in place.run("distributed.py", launcher=launcher) if note["steps"]]
    for note in notes:
        (wrap,), (module,) = made(note["places"], "distributed"), note["places"]["modules"]
        assert lines_of(wrap, "distributed.py") == "model = DistributedDataParallel(copy.deepcopy(plain))"
        assert module["expression"] == "model" and not module["wraps"], note["places"]["modules"]


def check_places_of_modules_that_a_table_holds(place):
    places = place.note("table.py")["places"]
    assert [one["expression"] for one in places["modules"]] == ["nets['maker']", "nets['critic']"], places["modules"]
    assert len(places["zeros"]) == 1 and [one["direct"] for one in made(places, "optimizers")] == [True, True]
