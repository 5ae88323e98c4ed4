"""Any text is a schedule or a refusal that names its field; nothing else comes out of the parser."""

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from astrabox_scheduler_crds.cron import CronError, CronSchedule, InvalidCron, InvalidZone
from tests.property.cron.expressions import expressions, zones
from tests.property.cron.oracle import next_wall

FIELDS = {"minute", "hour", "day of month", "month", "day of week", "expression", "timezone"}
START = datetime(2026, 1, 1, tzinfo=UTC)

any_text = st.text(st.characters(exclude_categories=()), max_size=300)  # surrogates and NUL too
SIGNS = "* / - , 0 1 7 12 31 59 99 mon SUN jan L W # ? R H @ + . 00 TZ= \0 \ud800 \u0663 \uff11"
tokens = st.sampled_from([*SIGNS.split(" "), " ", " ", " ", "\t", "\n", "\x0b", "\xa0", "\u2003"])
nearly_a_field = st.lists(tokens.filter(lambda token: not token.isspace()), min_size=1, max_size=4).map(
    "".join
)
nearly_an_expression = st.one_of(
    st.lists(tokens, max_size=40).map("".join),
    st.lists(st.one_of(st.sampled_from(["*", "0", "1-5"]), nearly_a_field), min_size=5, max_size=5).map(
        " ".join
    ),
)


def refusal_is_complete(error: CronError) -> None:
    assert error.field in FIELDS
    message = str(error)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 400


@given(st.one_of(any_text, nearly_an_expression), st.one_of(st.just("UTC"), zones, any_text))
@example("", "")
@example("0" * 10_000, "UTC")
@example("* * * * *" + " " * 10_000, "UTC")
@example("*/" + "9" * 250 + " * * * *", "UTC")
def test_any_text_is_a_schedule_or_a_refusal(cron: str, zone: str) -> None:
    try:
        schedule = CronSchedule.parse(cron, zone)
    except (InvalidCron, InvalidZone) as error:
        refusal_is_complete(error)
    else:
        assert schedule.next_after(START) > START
        assert CronSchedule.parse(schedule.text, schedule.zone) == schedule


@given(nearly_an_expression)
def test_what_is_accepted_means_what_it_says(cron: str) -> None:
    try:
        schedule = CronSchedule.parse(cron, "UTC")
    except InvalidCron:
        return
    expected = next_wall(cron, START.replace(tzinfo=None))
    assert expected is not None
    assert schedule.next_after(START) == expected.replace(tzinfo=UTC)


@given(
    expressions(day_star=1),
    st.sampled_from("LW#?RH@%^$!~+.;:|&()[]{}=<>\\'\"\n\r\0\x7f\xa0\u0661"),
    st.data(),
)
def test_no_other_sign_is_accepted_anywhere(cron: str, sign: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(cron)))
    try:
        CronSchedule.parse(cron[:place] + sign + cron[place:], "UTC")
    except InvalidCron as error:
        refusal_is_complete(error)
    else:
        raise AssertionError(f"{sign!r} was accepted at {place} of {cron}")


@given(any_text)
@example("Europe/Berlin\n")
@example("Factory")
def test_any_text_is_a_zone_or_a_refusal(zone: str) -> None:
    try:
        CronSchedule.parse("* * * * *", zone)
    except InvalidZone as error:
        refusal_is_complete(error)
