"""Commands as they are typed, in the process of the tests."""

from click.testing import CliRunner, Result

from manifind.cli import main


def run(*words: object) -> Result:
    """Run a command of these words, paths and numbers; an error that it does not tell in a sentence is raised."""
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def refused(*words: object) -> str:
    """Run a command that the user's words make no sense for; return the sentence that it says, on one line."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())
