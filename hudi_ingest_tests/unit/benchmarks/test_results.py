from __future__ import annotations

from benchmarks.results import API, DAGSTER, LIMIT, SMOKE_LEAST, STREAMING, Measured, load_results, smoke_failures


def a_round(contender: str, seconds: float, *, cold: bool = False, cpu: float = 4.0, memory: int = 100) -> Measured:
    return Measured(contender, cold, 2_000_000, 380_000_000, seconds, cpu, memory, 40, 1.0)


def test_figures_are_medians_of_the_warm_rounds_and_the_cold_round_stands_apart() -> None:
    rounds = [
        a_round(API, 40.0, cold=True),
        a_round(API, 9.0),
        a_round(API, 10.0, cpu=6.0, memory=300),
        a_round(API, 20.0),
    ]
    found = load_results(rounds)[API]
    assert found == {
        "records_per_second": 200_000.0,
        "mb_per_second": 38.0,
        "cpu_seconds": 4.0,
        "cpu_seconds_per_million": 2.0,
        "broker_cpu_seconds_per_million": 0.5,
        "peak_rss_bytes": 100,
        "peak_worker_rss_bytes": 40,
        "seconds": 10.0,
        "rounds": 3,
        "seconds_of_each_round": [9.0, 10.0, 20.0],
        "cold": {
            "records_per_second": 50_000.0,
            "mb_per_second": 9.5,
            "cpu_seconds": 4.0,
            "cpu_seconds_per_million": 2.0,
            "broker_cpu_seconds_per_million": 0.5,
            "peak_rss_bytes": 100,
            "peak_worker_rss_bytes": 40,
            "seconds": 40.0,
        },
    }


def test_ratios_are_of_warm_records_a_second() -> None:
    rounds = [a_round(name, seconds) for name, seconds in ((DAGSTER, 20), (API, 10), (STREAMING, 40), (LIMIT, 8))]
    assert load_results(rounds)["ratios"] == {
        "dagster_to_streaming": 2.0,
        "api_to_streaming": 4.0,
        "api_to_limit": 0.8,
        "dagster_to_api": 0.5,
    }


def test_an_interrupted_load_has_what_was_measured() -> None:
    found = load_results([a_round(API, 10.0, cold=True), a_round(LIMIT, 5.0)])
    assert found[API]["rounds"] == 0
    assert found["ratios"] == {}
    assert DAGSTER not in found


def test_the_smoke_test_fails_below_a_threshold_and_for_a_missing_ratio() -> None:
    good = dict(SMOKE_LEAST)
    assert smoke_failures(good) == []
    least = SMOKE_LEAST["api_to_streaming"]
    told = f"api_to_streaming is {least - 0.01}, but must be at least {least}"
    assert smoke_failures({**good, "api_to_streaming": least - 0.01}) == [told]
    assert smoke_failures({"api_to_streaming": 9.0}) == [
        f"api_to_limit is missing, but must be at least {SMOKE_LEAST['api_to_limit']}"
    ]
