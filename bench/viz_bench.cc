// SPDX-License-Identifier: Apache-2.0
// The viewer's core at ten million ops over 64 lanes: open, index, lay out while panning and
// zooming. Goals (issue 6): open 300 ms, index 100 ms, layout 4 ms at the 99th percentile.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "schedules/trace/trace.h"
#include "viz/export/export.h"
#include "viz/import/import.h"
#include "viz/picture/figure.h"
#include "viz/picture/formats/png.h"
#include "viz/picture/formats/svg.h"
#include "viz/picture/paint.h"
#include "viz/picture/ranks/heat_map.h"
#include "viz/window/session.h"
#include "viz/window/view/scene.h"

namespace rehearse::viz {
namespace {

// This thread's time: what a frame costs, however busy the machine is.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// How long frames took: on this thread, and by the clock (on a machine that does other things too).
class FrameTimes {
 public:
  template <class Frame>
  void time(const Frame& frame) {
    const double cpu = cpu_ms();
    const auto wall = std::chrono::steady_clock::now();
    frame();
    cpu_.push_back(cpu_ms() - cpu);
    wall_.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - wall).count());
  }
  void forget() {
    cpu_.clear();
    wall_.clear();
  }
  void report(benchmark::State& state) {
    for (const auto& [name, times] : {std::pair{"", &cpu_}, {"wall_", &wall_}}) {
      std::ranges::sort(*times);
      const auto at = [&](double share) {
        return (*times)[static_cast<std::size_t>(share * static_cast<double>(times->size() - 1))];
      };
      state.counters[std::string(name) + "p50_ms"] = at(0.5);
      state.counters[std::string(name) + "p99_ms"] = at(0.99);
      state.counters[std::string(name) + "max_ms"] = at(1);
    }
  }

 private:
  std::vector<double> cpu_, wall_;
};

// The shape of 1F1B without a schedule behind it: warm-up staircase, then F and B in turn with
// small random gaps, each with a cause, then cool-down.
Trace big_trace(std::int64_t ops, std::int32_t rows) {
  std::mt19937 random(1);
  Trace trace;
  trace.slots = 1;
  const std::int64_t per_row = ops / rows;
  std::vector<TraceRow> row_info;
  std::vector<TraceLane> lanes(static_cast<std::size_t>(rows));
  std::vector<TraceClass> classes;
  std::vector<std::int64_t> row_begin{0}, start, end, idle_begin{0};
  std::vector<std::int32_t> op_class, microbatch,
      partner(static_cast<std::size_t>(per_row * rows), -1);
  std::vector<IdleSpan> idle;
  for (auto* column : {&start, &end}) column->reserve(static_cast<std::size_t>(per_row * rows));
  for (std::int32_t row = 0; row < rows; ++row) {
    row_info.push_back({.position = {row}, .multiplicity = 1, .first_rank = {row}});
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      classes.push_back({.kind = kind, .stage = {row}});
    }
    std::int64_t now = row * 1100;
    if (now > 0) idle.push_back({.begin = 0, .end = now, .cause = IdleCause::Warmup});
    for (std::int64_t i = 0; i < per_row; ++i) {
      const bool backward = i % 2 == 1;
      if (random() % 16 == 0) {
        const std::int64_t gap = 1 + static_cast<std::int64_t>(random() % 800);
        idle.push_back({.begin = now,
                        .end = now + gap,
                        .cause = random() % 2 ? IdleCause::Communication : IdleCause::Dependency});
        now += gap;
      }
      start.push_back(now);
      now += (backward ? 2000 : 1000) + static_cast<std::int64_t>(random() % 100);
      end.push_back(now);
      op_class.push_back(2 * row + (backward ? 1 : 0));
      microbatch.push_back(static_cast<std::int32_t>(i / 2));
    }
    trace.end = std::max(trace.end, Nanoseconds{now});
    row_begin.push_back(static_cast<std::int64_t>(start.size()));
    idle.push_back({.begin = now, .cause = IdleCause::Cooldown});  // to the step's end
    idle_begin.push_back(static_cast<std::int64_t>(idle.size()));
  }
  for (std::size_t row = 1; row < idle_begin.size(); ++row)
    idle[static_cast<std::size_t>(idle_begin[row] - 1)].end = trace.end.value;
  trace.rows = std::move(row_info);
  trace.lanes = std::move(lanes);
  trace.classes = std::move(classes);
  trace.row_begin = std::move(row_begin);
  trace.start_ns = std::move(start);
  trace.end_ns = std::move(end);
  trace.op_class = std::move(op_class);
  trace.microbatch = std::move(microbatch);
  trace.partner = std::move(partner);
  trace.idle_begin = std::move(idle_begin);
  trace.idle = std::move(idle);
  return trace;
}

// A memory curve under every row, with a sample per op, and as many samples over 16 links.
void add_curves(Trace& trace) {
  std::mt19937 random(5);
  const std::size_t ops = trace.start_ns.size();
  std::vector<std::int64_t> bytes, time(trace.start_ns.begin(), trace.start_ns.end());
  bytes.reserve(2 * ops);
  for (std::size_t i = 0; i < ops; ++i) {
    bytes.push_back(std::int64_t{20} << 30);
    bytes.push_back(static_cast<std::int64_t>(random() % 40) << 30);
  }
  trace.memory_parts = {"parameters", "activations"};
  trace.memory_begin = std::vector<std::int64_t>(trace.row_begin.begin(), trace.row_begin.end());
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
  constexpr std::size_t kLinks = 16;
  std::vector<std::int64_t> begin{0};
  std::vector<LinkSample> samples;
  trace.strings.emplace_back("a link");
  for (std::size_t link = 0; link < kLinks; ++link) {
    const std::int64_t step =
        trace.end.value / static_cast<std::int64_t>(std::max<std::size_t>(1, ops / kLinks));
    for (std::size_t i = 0; i < ops / kLinks; ++i) {
      samples.push_back({.time = static_cast<std::int64_t>(i) * step,
                         .load_ppm = static_cast<std::int32_t>(random() % 1'000'000)});
    }
    begin.push_back(static_cast<std::int64_t>(samples.size()));
  }
  trace.links = std::vector<TraceLink>(kLinks, TraceLink{.name = 0});
  trace.link_begin = std::move(begin);
  trace.link_samples = std::move(samples);
}

std::string big_file(std::int64_t ops) {
  static std::vector<std::pair<std::int64_t, std::string>> made;  // removed by main
  const std::string path = "/tmp/viz_bench_" + std::to_string(ops) + ".trace";
  for (const auto& [size, file] : made) {
    if (size == ops) return file;
  }
  if (!write_trace(big_trace(ops, 64), path)) std::abort();
  made.emplace_back(ops, path);
  return path;
}

void OpenTrace(benchmark::State& state) {
  const std::string path = big_file(state.range(0));
  for (auto _ : state) {
    Result<Trace> trace = read_trace(path);
    if (!trace) std::abort();
    benchmark::DoNotOptimize(trace.value().num_ops());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// Memory of this process that is resident, mapped files included [B].
double resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0, resident = 0;
  const bool read = file != nullptr && std::fscanf(file, "%ld %ld", &total, &resident) == 2;
  if (file != nullptr) std::fclose(file);
  return read ? static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

// From the file to the window's first picture: open, prove, index, lay out.
void FileToFirstPicture(benchmark::State& state) {
  const std::string path = big_file(state.range(0));
  const double before = resident_bytes();
  for (auto _ : state) {
    std::vector<Document> documents;
    documents.emplace_back(std::move(read_trace(path)).value());
    const Session session(std::move(documents));
    SceneCache cache;
    const Scene scene = view_scene(session, initial_state(session, 1600, 900), cache);
    benchmark::DoNotOptimize(scene.layers.size());
    state.counters["resident_bytes_per_op"] =
        (resident_bytes() - before) / static_cast<double>(state.range(0));
  }
}

void BuildIndex(benchmark::State& state) {
  const Trace trace = std::move(read_trace(big_file(state.range(0)))).value();
  std::size_t bytes = 0;
  for (auto _ : state) {
    const TraceIndex index(trace);
    bytes = index.bytes();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["index_bytes_per_op"] =
      static_cast<double>(bytes) / static_cast<double>(state.range(0));
}

// A person's session: zoom in by wheel steps at a wandering point, pan, zoom out; over and over.
// Arguments: ops; columns on a grid (what the window uses); with colours and shapes.
void LayoutFrames(benchmark::State& state) {
  const Trace trace = std::move(read_trace(big_file(state.range(0)))).value();
  const TraceIndex index(trace);
  const Coloring coloring(trace);
  const auto lanes = shown_lanes(index, 0, trace.num_rows(), true);
  const bool snap = state.range(1) != 0, paint = state.range(2) != 0;
  Frame frame;
  FrameTimes times;
  std::size_t most_boxes = 0;
  std::mt19937 random(2);
  for (auto _ : state) {
    double begin = 0, end = static_cast<double>(trace.end.value);
    const double whole = end;
    bool inward = true;
    for (int step = 0; step < 400; ++step) {
      const double span = end - begin;
      if (span < 20000) inward = false;
      if (span > whole) inward = true;
      if (step % 5 == 4) {  // pan
        const double by = span * (static_cast<double>(random() % 100) / 100 - 0.5) * 0.2;
        begin += by;
        end += by;
      } else {
        const double at = begin + span * static_cast<double>(random() % 100) / 100;
        const double factor = inward ? 0.8 : 1.25;
        begin = at - (at - begin) * factor;
        end = at + (end - at) * factor;
      }
      const View view{.begin = {static_cast<std::int64_t>(begin)},
                      .end = {static_cast<std::int64_t>(end) + 1},
                      .width_px = 1500,
                      .snap = snap};
      times.time([&] {
        layout(index, view, lanes, frame);
        if (!paint) return;
        Scene scene;
        for (const LaneFrame& lane : frame.lanes) {
          paint_lane(index, coloring, frame, lane, {.y = lane.lane * 14.0, .height = 13},
                     Theme::Dark, scene);
        }
        benchmark::DoNotOptimize(scene.rects.data());
      });
      most_boxes = std::max(most_boxes, frame.boxes.size());
    }
  }
  times.report(state);
  state.counters["boxes"] = static_cast<double>(most_boxes);
}

// The window's whole frame, from an event to the scene: what a person waits for but the drawing.
// Arguments: ops; with memory under every row, and links.
void WindowFrames(benchmark::State& state) {
  std::vector<Document> documents;
  const bool curves = state.range(1) != 0;
  if (curves) {
    Trace trace = big_trace(state.range(0), 64);
    add_curves(trace);
    documents.emplace_back(std::move(trace));
  } else {
    documents.emplace_back(std::move(read_trace(big_file(state.range(0)))).value());
  }
  const Session session(std::move(documents));
  FrameTimes times;
  std::mt19937 random(3);
  for (auto _ : state) {
    SceneCache cache;
    ViewState view = initial_state(session, 1650, 1000);
    view.links = curves;
    // What is derived once, when first shown, is not a frame.
    for (std::int32_t row = 0; row < 64; ++row) (void)session.at(0).memory(row);
    session.prepare();
    (void)view_scene(session, view, cache);
    for (int step = 0; step < 200; ++step) {
      const Event event{.type = Event::Type::Wheel,
                        .shift = step % 4 == 3,
                        .control = step % 4 != 3,
                        .x = 0,
                        .y = step % 80 < 50 ? 1.0 : -1.5};
      view.mouse_x = 200 + static_cast<double>(random() % 1300);
      view.mouse_y = 300;
      times.time([&] {
        view = reduce(session, std::move(view), event);
        const Scene scene = view_scene(session, view, cache);
        benchmark::DoNotOptimize(scene.layers.data());
      });
    }
  }
  times.report(state);
}

// A heat map of 10,000 ranks while zooming and panning: every cell's exact sum and its worst rank,
// and the colours. Arguments: ops of all ranks, what it counts (viz::HeatOf).
void HeatFrames(benchmark::State& state) {
  constexpr std::int32_t kRanks = 10'000, kColumns = 1000;
  Trace trace = big_trace(state.range(0), kRanks);
  trace.row_class = std::vector<std::int32_t>(kRanks, 0);
  const TraceIndex index(trace);
  const HeatSource source(index);
  const auto of = static_cast<HeatOf>(state.range(1));
  FrameTimes times;
  std::mt19937 random(7);
  Frame frame;
  const auto draw = [&](double begin, double end) {
    const View view{.begin = {static_cast<std::int64_t>(begin)},
                    .end = {static_cast<std::int64_t>(end) + 1},
                    .width_px = kColumns,
                    .snap = true};
    times.time([&] {
      View cells = view;  // of thousands of ranks, as the window has them
      cells.width_px /= 2;
      layout(index, cells, {}, frame);
      const HeatTable table = source.table(of, frame.edges, heat_bands(700, 1));
      Scene scene;
      paint_heat(table, of, view, {.height = 700}, Theme::Dark, scene);
      benchmark::DoNotOptimize(scene.strips.data());
    });
  };
  draw(0, static_cast<double>(trace.end.value));  // what is derived once is no frame
  times.forget();
  for (auto _ : state) {
    double begin = 0, end = static_cast<double>(trace.end.value);
    for (int step = 0; step < 60; ++step) {
      draw(begin, end);
      const double span = end - begin;
      const double at = begin + span * static_cast<double>(random() % 100) / 100;
      const double factor = step % 40 < 25 ? 0.8 : 1.4;
      begin = at - (at - begin) * factor;
      end = at + (end - at) * factor;
    }
  }
  times.report(state);
}

// 64 ranks with 512 ops each, from the trace to the file's text.
template <std::string (*kDraw)(const Scene&)>
void render(benchmark::State& state) {
  const Trace trace = big_trace(state.range(0) * 512, static_cast<std::int32_t>(state.range(0)));
  std::size_t bytes = 0;
  for (auto _ : state) {
    const TraceIndex index(trace);
    bytes = kDraw(figure(index, {})).size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
void RenderSvg(benchmark::State& state) {
  render<svg>(state);
}
void RenderPng(benchmark::State& state) {
  render<png>(state);
}

// A profiler's file in the shape of Kineto's: host and device events with long arguments.
void ReadChrome(benchmark::State& state) {
  std::string text = "{\"schemaVersion\": 1, \"traceEvents\": [\n";
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    const bool device = i % 3 == 0;
    text += "  {\n    \"ph\": \"X\", \"cat\": \"" + std::string(device ? "kernel" : "cpu_op") +
            "\", \"name\": \"" +
            (device ? "void at::native::vectorized_elementwise_kernel<4, at::native::" : "aten::") +
            "op" + std::to_string(i % 700) + "\", \"pid\": " + (device ? "0" : "4711") +
            ", \"tid\": " + std::to_string(device ? 7 : 4711) +
            ",\n    \"ts\": " + std::to_string(1689153433512000 + i * 13) +
            ".250, \"dur\": 11.125,\n    \"args\": {\n      "
            "\"External id\": " +
            std::to_string(i) +
            ", \"device\": 0, \"context\": 1, \"stream\": 7, "
            "\"correlation\": " +
            std::to_string(i * 3) +
            ", \"grid\": [1024, 1, 1], \"block\": [128, 1, 1], "
            "\"registers per thread\": 32, \"est. achieved occupancy %\": 83\n    }\n  },\n";
  }
  text +=
      "  {\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": "
      "\"python\"}}\n]}\n";
  for (auto _ : state) {
    const Result<Trace> trace = import_chrome(text, "bench");
    if (!trace) std::abort();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void write(benchmark::State& state, Result<> (*write)(const Trace&, const std::string&)) {
  const Trace trace = big_trace(state.range(0), 64);
  const std::string path = "/tmp/viz_bench_export";
  std::int64_t bytes = 0;
  for (auto _ : state) {
    if (!write(trace, path)) std::abort();
    std::FILE* file = std::fopen(path.c_str(), "rb");
    std::fseek(file, 0, SEEK_END);
    bytes = std::ftell(file);
    std::fclose(file);
  }
  std::remove(path.c_str());
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["bytes_per_op"] = static_cast<double>(bytes) / static_cast<double>(state.range(0));
}
void WriteChrome(benchmark::State& state) {
  write(state, [](const Trace& trace, const std::string& path) {
    return export_chrome(trace, path, false);
  });
}
void WritePerfetto(benchmark::State& state) {
  write(state, [](const Trace& trace, const std::string& path) {
    return export_perfetto(trace, path, false);
  });
}

BENCHMARK(OpenTrace)->Arg(10'000'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);
BENCHMARK(BuildIndex)->Arg(10'000'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);
BENCHMARK(LayoutFrames)
    ->Args({10'000'000, 1, 0})
    ->Args({10'000'000, 1, 1})
    ->Args({10'000'000, 0, 0})
    ->Args({1'000'000, 1, 1})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK(WindowFrames)
    ->Args({10'000'000, 0})
    ->Args({10'000'000, 1})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK(HeatFrames)
    ->Args({10'000'000, kHeatIdle})
    ->Args({10'000'000, heat_of(IdleCause::Communication)})
    ->Args({10'000'000, kHeatExcess})
    ->Args({1'000'000, kHeatExcess})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK(RenderSvg)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(RenderPng)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(ReadChrome)->Arg(200'000)->Unit(benchmark::kMillisecond);
BENCHMARK(WriteChrome)->Arg(1'000'000)->Unit(benchmark::kMillisecond);
BENCHMARK(WritePerfetto)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace

benchmark::internal::Benchmark* const huge =
    benchmark::RegisterBenchmark("FileToFirstPicture", FileToFirstPicture)
        ->Arg(10'000'000)
        ->Unit(benchmark::kMillisecond);

}  // namespace rehearse::viz

int main(int argc, char** argv) {
  // 100 million ops take 3 GB of disk and 6 GB of memory while they are made: only when asked for.
  if (std::getenv("REHEARSE_BENCH_HUGE") != nullptr) rehearse::viz::huge->Arg(100'000'000);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  std::remove("/tmp/viz_bench_1000000.trace");
  std::remove("/tmp/viz_bench_10000000.trace");
  std::remove("/tmp/viz_bench_100000000.trace");
}
