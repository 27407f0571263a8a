"""The command `tinyllm serve` in its own process."""

import os
import signal
import subprocess
import sys
import threading

import pytest

pytest.importorskip("uvicorn", reason="not checked: the extra serve is not installed")
openai = pytest.importorskip("openai", reason="not checked: the client is not installed")

from labkit.course.paths import ROOT  # noqa: E402


@pytest.mark.skipif(os.name != "posix", reason="not checked: signals of POSIX")
def test_the_command_serves_here_alone_and_stops_with_answers_under_way():
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "serve", "--port", "0"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200",
             "TINYLLM_LANG": "en"},
    )  # fmt: skip
    watch = threading.Timer(120, process.kill)
    watch.start()
    try:
        line = next(line for line in process.stdout if "http://" in line)
        base = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with openai.OpenAI(base_url=base, api_key="none", timeout=60, max_retries=0) as client:
            asked = [{"role": "user", "content": "Tell me a story about a rabbit."}]
            stream = client.chat.completions.create(
                model="tinyllm", messages=asked, max_tokens=400, temperature=0, stream=True
            )
            next(stream), next(stream)
            process.send_signal(signal.SIGINT)
            with pytest.raises((openai.APIError, StopIteration)):
                while True:
                    next(stream)
        assert process.wait(30) == 0
    finally:
        watch.cancel()
        process.kill()
        process.wait(10)
