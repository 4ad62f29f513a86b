"""How the scripts here call commands, and say what holds."""

import subprocess


class DoesNotHoldError(Exception):
    """Something that should hold does not."""


def need(holds, text):
    """Print what holds; raise if it does not."""
    if not holds:
        raise DoesNotHoldError(text)
    print("ok ", text, flush=True)


def call(words, **how):
    """Return a command's output; raise if it fails."""
    done = subprocess.run(
        [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how
    )
    if done.returncode:
        raise DoesNotHoldError(f"{' '.join(map(str, words))}\nexit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout
