"""Due times of a five-field cron expression in an IANA time zone.

Pure: no clock is read, no file but those of the `tzdata` package, and every datetime that goes in
or comes out is aware. `docs/due-times.md` tells the rules to users.
"""

from .calculus import CronSchedule
from .errors import CronError, InvalidCron, InvalidZone, NoDueTime, ZoneDataMissing
from .zones import check_zone_data, tzdata_version

__all__ = [
    "CronError",
    "CronSchedule",
    "InvalidCron",
    "InvalidZone",
    "NoDueTime",
    "ZoneDataMissing",
    "check_zone_data",
    "tzdata_version",
]
