# SPDX-License-Identifier: Apache-2.0
"""The Python package says what the command says. The environment's REHEARSE is the command."""
import json
import os
import subprocess
import tempfile
import threading
import typing
import unittest
from pathlib import Path

import rehearse_train as rt
from rehearse_train import reports

try:
    import pandas
except ImportError:
    pandas = None
TINY = {"cluster": "dgx-a100-80gb", "gpus": 4,
        "model": {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 16, "vocab_size": 256},
        "plan": {"pipeline_parallel": 2, "data_parallel": 2, "micro_batch": 1, "global_batch": 8}}


def printed(*arguments: str) -> str:
    return subprocess.run([os.environ["REHEARSE"], *arguments], capture_output=True, text=True, check=True).stdout


def without_clock(report: dict) -> dict:
    report = json.loads(json.dumps(report))
    report["simulation"].pop("wall_s")
    return report


def differences(shape: object, value: object, at: str) -> list:
    """Where a document is not what its typed dict says: keys of one and not of the other, other types."""
    if typing.is_typeddict(shape):
        if not isinstance(value, dict):
            return [f"{at}: {value!r} is no object"]
        types = typing.get_type_hints(shape)
        optional = shape.__optional_keys__
        found = [f"{at}.{key}: not in the document" for key in types if key not in value and key not in optional]
        found += [f"{at}.{key}: not in the typed dict" for key in value if key not in types]
        return found + [one for key in types if key in value
                        for one in differences(types[key], value[key], f"{at}.{key}")]
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin is typing.Union:
        return [] if any(not differences(one, value, at) for one in arguments) else [f"{at}: {value!r} is no {shape}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{at}: {value!r} is no list"]
        return [one for i, item in enumerate(value) for one in differences(arguments[0], item, f"{at}[{i}]")]
    if origin is dict:
        return differences(dict, value, at) or [one for key, item in value.items()
                                                for one in differences(arguments[1], item, f"{at}.{key}")]
    if shape is typing.Any or (shape is float and type(value) is int) or type(value) is shape:
        return []
    return [] if shape is type(None) and value is None else [f"{at}: {value!r} is no {shape}"]


class Package(unittest.TestCase):
    def test_a_prediction_is_the_report_of_the_command(self):
        step = rt.simulate("3d-8-gpus", set={"plan.data_parallel": 4}, gpus=16)
        report = json.loads(printed("simulate", "3d-8-gpus", "--set", "plan.data_parallel=4", "--gpus", "16", "--json"))
        self.assertEqual(without_clock(step.report), without_clock(report))
        self.assertEqual(step.step_time_s, report["step_time_s"])
        self.assertEqual(step.fits, report["memory"]["fits"])
        self.assertIn(f"{step.step_time_s:.4g} s", repr(step))

    def test_typed_dicts_have_the_keys_of_the_documents(self):
        for scenario in ("3d-8-gpus", "tiny-one"):
            self.assertEqual(differences(reports.PredictionReport, rt.simulate(scenario).report, scenario), [])
        for gpus in (1, 8):
            self.assertEqual(differences(reports.PlanReport, rt.plan("llama3-8b", gpus, "h100").report, "plan"), [])
        found = rt.search({**TINY, "plan": {"global_batch": 8}}, top=2)
        self.assertEqual(differences(reports.SearchReport, found.report, "search"), [])
        why = rt.explain(TINY, TINY, set={"plan.micro_batch": 2})
        self.assertEqual(differences(reports.ExplainReport, why.report, "explain"), [])

    def test_a_dict_is_a_scenario(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tiny.json"
            file.write_text(json.dumps(TINY))
            of_file = rt.simulate(file)
        self.assertEqual(rt.simulate(TINY).step_time_s, of_file.step_time_s)

    def test_pictures_are_those_of_render(self):
        step = rt.simulate(TINY)
        trace = step.trace()
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder) / "step.svg"
            printed("render", str(trace.path), "--svg", str(drawn), "--width", "1200")
            self.assertEqual(step.svg(), drawn.read_text())
            copy = Path(folder) / "copy.trace"
            trace.save(copy)
            self.assertEqual(rt.compare(trace, copy)["step_time_error"], 0)
        self.assertIn("</svg>", step._repr_html_())
        self.assertIn("</svg>", trace._repr_html_())

    def test_an_error_is_the_one_line(self):
        with self.assertRaises(rt.RehearseError) as raised:
            rt.simulate("nowhere.json")
        self.assertEqual(raised.exception.code, 2)
        self.assertTrue(str(raised.exception).startswith("nowhere.json: no such file"))
        with self.assertRaisesRegex(rt.RehearseError, "acts on this machine"):
            rt.ask("run", "tiny-one")
        with self.assertRaisesRegex(rt.RehearseError, "no such file"):
            rt.Trace("nowhere.trace")

    def test_a_plan_that_does_not_fit_says_what_would(self):
        plan = rt.plan("llama3-8b", 1, "h100")
        self.assertFalse(plan.fits)
        self.assertIsNone(plan.report["best"])
        self.assertTrue(plan.report["ways"])

    def test_search_and_check_and_schedule(self):
        with tempfile.TemporaryDirectory() as folder:
            found = rt.search({**TINY, "plan": {"global_batch": 8}}, top=3, save=folder)
            best = found.report["cases"][0]["best"]
            self.assertEqual(len(found.scenarios), len(best))
            self.assertAlmostEqual(rt.simulate(found.scenarios[0]).step_time_s, best[0]["step_time_s"], places=12)
        self.assertIn("<svg", found.svg())
        with self.assertRaisesRegex(rt.RehearseError, "--bye: no such option; the nearest is --by"):
            rt.search(TINY, bye="2027-03-01")
        self.assertTrue(rt.check("3d-8-gpus"))
        order = rt.schedule("1f1b", 4, 8)
        self.assertEqual(order.report["stages"], 4)
        self.assertIn("<svg", order._repr_html_())

    def test_a_schedule_that_hangs_is_not_sound(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "order.csv"
            file.write_text("0B0,0F0\n")
            answer = rt.check(file)
        self.assertFalse(answer)
        self.assertFalse(answer.report["files"][0]["sound"])

    def test_an_explanation_adds_up(self):
        a, b = rt.simulate("3d-8-gpus"), rt.simulate("3d-8-gpus", set={"plan.micro_batch": 2})
        why = rt.explain(a, b)
        self.assertEqual(sum(cause["difference_ns"] for cause in why.report["causes"]), why.report["difference_ns"])
        self.assertEqual(why.report["b"]["step_ns"], round(1e9 * b.step_time_s))
        self.assertIn("<svg", why._repr_html_())
        traces = rt.explain(rt.simulate(TINY).trace(), TINY)
        self.assertEqual(traces.report["a"]["what"], "trace")

    def test_threads_ask_at_once(self):
        times = []
        threads = [threading.Thread(target=lambda: times.append(rt.simulate(TINY).step_time_s)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(times)), 1)
        self.assertEqual(len(times), 4)

    @unittest.skipIf(pandas is None, "SKIPPED: no pandas here")
    def test_tables(self):
        step = rt.simulate(TINY)
        memory = step.to_pandas()
        self.assertEqual(memory["peak_allocated_bytes"].max(), step.report["memory"]["peak_allocated_bytes"])
        bubbles = step.to_pandas("bubbles")
        self.assertAlmostEqual(bubbles["idle_s"].sum(), step.bubble_ratio * step.step_time_s, places=9)
        self.assertEqual(len(step.to_pandas("communication")), len(step.report["communication"]))
        ops = step.trace().to_pandas()
        self.assertEqual(ops["duration_ns"].dtype.kind, "i")
        self.assertTrue((ops["end_ns"] - ops["start_ns"] == ops["duration_ns"]).all())
        causes = rt.explain(TINY, TINY, set={"plan.micro_batch": 2}).to_pandas()
        self.assertEqual(causes["difference_ns"].sum(), causes["b_ns"].sum() - causes["a_ns"].sum())

    @unittest.skipIf(pandas is not None, "SKIPPED: pandas is here")
    def test_without_pandas_it_says_so(self):
        with self.assertRaisesRegex(ImportError, "needs pandas"):
            rt.simulate(TINY).to_pandas()


if __name__ == "__main__":
    unittest.main()
