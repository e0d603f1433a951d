"""Every flag that gcloud had is taken. The lists are those of SDK 578's own completion table."""

import pytest

from stoker.cli.completion import all_commands

GLOBAL = "account access-token-file billing-project configuration flatten impersonate-service-account log-http project"
GLOBAL += " quiet trace-token user-output-enabled verbosity"
FLAGS = {
    ("jobs", "submit", "training"): """async config enable-web-access format job-dir kms-key kms-keyring kms-location
        kms-project labels master-accelerator master-image-uri master-machine-type module-name network package-path
        packages parameter-server-accelerator parameter-server-count parameter-server-image-uri
        parameter-server-machine-type python-version region runtime-version scale-tier service-account staging-bucket
        stream-logs tpu-tf-version use-chief-in-tf-config worker-accelerator worker-count worker-image-uri
        worker-machine-type""",
    ("jobs", "list"): "filter format limit page-size sort-by",
    ("jobs", "describe"): "format summarize",
    ("jobs", "stream-logs"): "allow-multiline-logs polling-interval task-name",
    ("jobs", "cancel"): "format",
    ("jobs", "update"): "clear-labels format remove-labels update-labels",
    (
        "local",
        "train",
    ): """distributed evaluator-count job-dir module-name package-path parameter-server-count start-port
        worker-count""",
}


@pytest.mark.parametrize("path", FLAGS, ids=" ".join)
def test_flags_of_gcloud_are_taken(path: tuple[str, ...]) -> None:
    parser = dict(all_commands())[path]
    ours = {flag for action in parser._actions for flag in action.option_strings}

    theirs = {f"--{name}" for name in f"{FLAGS[path]} {GLOBAL}".split()}

    assert theirs - ours == set()
