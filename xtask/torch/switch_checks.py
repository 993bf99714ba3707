"""Remedies as switches, and the shadow steps that judge them: `switches/` has the cases, one process per file."""
import os
import subprocess

from harness import HERE


def output(place, file):
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(place.folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    words = [place.python, str(HERE / "switches" / file), str(place.hook)]
    done = subprocess.run(words, env=environment, cwd=place.folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{file}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_every_switch_leaves_what_it_found_when_it_goes_off(place):
    assert "20 checks passed" in output(place, "offs.py")


def check_no_planted_wrong_remedy_passes_a_shadow_step(place):
    assert "57 of 57 wrong remedies were refused" in output(place, "wrong.py")


def check_right_remedies_pass_a_shadow_step(place):
    assert "of 61 right remedies passed" in output(place, "right.py")
