"""The queries of a locustfile's tasks, found in their code."""

from __future__ import annotations

from typing import Any, ClassVar

from tsbench.drive.asked_queries import asked_queries


def tagged(*tags: str) -> Any:
    def tag(task: Any) -> Any:
        task.locust_tag_set = {*tags}
        return task

    return tag


class Inner:
    """A task set."""

    def ask(self: Any) -> None:
        self.user.query("in-a-task-set")

    tasks: ClassVar = [ask]


class Asker:
    def once(self: Any) -> None:
        self.query("lastpoint")

    def in_a_loop(self: Any) -> None:
        for _ in range(3):
            self.query(kind="lastpont")

        def later() -> None:
            self.query("in-a-closure")

        later()

    def computed(self: Any) -> None:
        kind = "raw-" + str(self)
        self.query(kind)
        self.write(250)

    @tagged("slow")
    def slow(self: Any) -> None:
        self.query("raw-all")

    def no_task(self: Any) -> None:
        self.query("never-asked")

    tasks: ClassVar = [once, once, in_a_loop, computed, slow, Inner]


ALWAYS = {
    "lastpoint": "Asker.once",
    "lastpont": "Asker.in_a_loop",
    "in-a-closure": "Asker.in_a_loop",
    "in-a-task-set": "Asker.Inner.ask",
}


def test_names_that_stand_in_the_code_of_tasks_are_found_and_no_others() -> None:
    assert asked_queries([Asker]) == {**ALWAYS, "raw-all": "Asker.slow"}


def test_tasks_that_their_tags_leave_out_ask_nothing() -> None:
    assert asked_queries([Asker], exclude_tags=["slow"]) == ALWAYS
    assert asked_queries([Asker], tags=["slow"]) == {"raw-all": "Asker.slow"}
