"""`manifind serve`, as it is typed."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from manifind.cli import main
from manifind.index import Index
from manifind.serve.run import address_shown
from tests.serve.asking import PATIENCE, get


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["serve", *(str(word) for word in words)], catch_exceptions=False)


def test_an_address_that_others_can_reach_demands_a_token(index: Index) -> None:
    refused = run(index.path, "--host", "0.0.0.0")  # noqa: S104
    assert refused.exit_code == 2
    assert "--token" in refused.stderr
    assert "--open-to-all" in refused.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_address_that_stands_for_all_is_shown_by_the_name_of_the_machine(host: str) -> None:
    assert address_shown(host, 80, "a b") == f"http://{socket.gethostname()}:80/?token=a%20b"
    assert address_shown("::1", 80, None) == "http://[::1]:80/"


def test_a_port_in_use_is_told(index: Index) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run(index.path, "--port", taken.getsockname()[1])
    assert refused.exit_code == 2
    assert "choose another" in refused.stderr


def test_an_index_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert run(tmp_path / "nowhere.manifind").exit_code == 2


def test_a_missing_extra_says_what_to_type(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("manifind.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("manifind.serve", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    refused = run(index.path)
    assert refused.exit_code == 2
    assert "pip install 'manifind[serve]'" in refused.stderr


def test_it_serves_until_it_is_interrupted(index: Index) -> None:
    command = [sys.executable, "-m", "manifind.cli", "serve", str(index.path), "--port", "0"]
    environment = {**os.environ, "MANIFIND_TOKEN": "for this test", "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as service,  # noqa: S603
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(service.kill)
        assert service.stdout is not None
        assert service.stderr is not None
        said = service.stdout.readline()
        address = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=for%20this%20test", said)
        assert address is not None
        assert get(f"{address[1]}api/health").status_code == 200
        assert get(f"{address[1]}api/info").status_code == 401
        assert get(address[0]).status_code == 303
        shown = get(f"{address[1]}metrics", headers={"Authorization": "Bearer for this test"}).text
        assert 'manifind_event_loop_info{loop="uvloop"}' in shown
        service.send_signal(signal.SIGINT)
        assert service.wait(PATIENCE) == 0
        assert "Traceback" not in service.stderr.read()
