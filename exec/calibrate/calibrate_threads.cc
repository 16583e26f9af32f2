// SPDX-License-Identifier: Apache-2.0
// What ranks that are threads of one process do to each other: exchanges by size and number of
// ranks, and how much slower each computes while all do.
#include <algorithm>
#include <atomic>
#include <thread>

#include "exec/calibrate/calibrate_parts.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kExchangeSlack = 64;  // [floats] arrays begin on lines of their own

struct ExchangeCase {
  ExchangeForm form;
  std::int32_t ranks = 2;
  std::int64_t elements = 0;  // of the whole array
};

// The last to arrive performs it for all: one thread, all members' memory. 0: the machine has no
// room for that much.
double exchange_us(Calibration& c, const ExchangeCase& what) {
  const auto members = static_cast<std::size_t>(what.ranks);
  std::vector<std::int32_t> ranks(members);
  std::vector<Lane> lanes(members);
  std::vector<Contribution> brought(members);
  for (std::int32_t r = 0; r < what.ranks; ++r) {
    ranks[static_cast<std::size_t>(r)] = r;
    lanes[static_cast<std::size_t>(r)] = {r, Stream::Compute};
  }
  const bool in_place = what.form.in_place();
  const std::int64_t all = (what.elements + kExchangeSlack) * what.ranks;  // no two share memory
  if (!c.written.holds(all) || (!in_place && !c.memory.holds(all))) return 0;
  return c.watch.median_us([&] {
    for (Contribution& one : brought) {
      one.in = in_place ? c.written.next(what.elements) : c.memory.next(what.elements);
      one.out = in_place ? one.in : c.written.next(what.elements);
    }
    c.device.exchange({.kind = what.form.kind,
                       .elements = what.elements,
                       .ranks = ranks,
                       .contributions = brought,
                       .lanes = lanes});
  });
}

// Runs `work` again and again on `threads` threads at once; mean time of one call over all [us].
double together_us(int threads, double seconds, const std::function<void(int thread)>& work) {
  std::atomic<int> ready{0};
  std::vector<double> times(static_cast<std::size_t>(threads));
  const auto body = [&](int thread) {
    work(thread);
    ++ready;
    while (ready.load() < threads) std::this_thread::yield();
    const double begin = now_s();
    double now = begin;
    std::int64_t calls = 0;
    for (; now - begin < seconds; now = now_s(), ++calls) work(thread);
    times[static_cast<std::size_t>(thread)] = (now - begin) * 1e6 / static_cast<double>(calls);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double time : times) sum += time;
  return sum / threads;
}

// Alone and together by turns, so that a machine that slows down meanwhile slows both.
double slowdown(Calibration& c, int threads, const std::function<void(int thread)>& work) {
  const double seconds = c.sizes.together_seconds;
  constexpr int kTurns = 5;
  std::vector<double> ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double alone = together_us(1, seconds / kTurns, work);
    ratios.push_back(together_us(threads, seconds / kTurns, work) / alone);
  }
  c.tables.together_scatter = std::max(c.tables.together_scatter, scatter(ratios));
  return std::max(1.0, quantile(ratios, 0.5));
}

}  // namespace

void measure_exchanges(Calibration& c) {
  std::vector<ExchangeCase> cases;
  const CalibrateSizes::Range& range = c.sizes.exchanged;
  for (const ExchangeForm& form : kExchangeForms) {
    for (const std::int32_t ranks : {2, 4, 8}) {
      for (std::int64_t n = range.first; n <= range.last; n *= range.factor) {
        cases.push_back({form, ranks, n});
      }
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const double us = exchange_us(c, cases[i]);
    if (us > 0) {
      c.tables.exchanges.push_back({.kind = cases[i].form.kind,
                                    .ranks = cases[i].ranks,
                                    .bytes = 4 * cases[i].elements,
                                    .us = us,
                                    .apart = cases[i].form.apart});
    } else {
      ++c.tables.left_out;
    }
    c.progress("collectives", static_cast<double>(i + 1) / static_cast<double>(cases.size()));
  }
  for (std::int64_t n = range.first; n <= range.last; n *= range.factor) {
    const double us = c.watch.median_us([&] {
      c.device.transfer(kLane, c.memory.next(n), {1, Stream::Compute}, c.written.next(n), 4 * n);
    });
    c.tables.exchanges.push_back({OpKind::Send, 2, 4 * n, us});
  }
}

void measure_computing_together(Calibration& c) {
  const int threads = c.tables.cores;
  if (threads == 1) return;
  constexpr std::int64_t kTokens = 128, kFeatures = 512;  // a small model's layer
  std::vector<RotatingMemory> memory;
  memory.reserve(static_cast<std::size_t>(threads));
  // What a layer of such a model holds: a kernel finds there what the one before it left.
  constexpr std::int64_t kLayerBytes = 16 * 4 * kTokens * kFeatures;
  for (int t = 0; t < threads; ++t) memory.emplace_back(c.device, kLayerBytes);
  const auto of = [&](int thread) -> RotatingMemory& {
    return memory[static_cast<std::size_t>(thread)];
  };
  c.progress("threads together", 0);
  c.tables.products_together = slowdown(c, threads, [&](int thread) {
    RotatingMemory& own = of(thread);
    perform_gemm(c.kernels, GemmRole::Forward, kTokens, kFeatures, kFeatures, own, own,
                 own.next(kTokens * kFeatures), own.next(kTokens * kFeatures));
  });
  const AttentionShape shape{
      .tokens = kTokens, .sequence = kTokens, .heads = 8, .kv_heads = 8, .head_dim = 64};
  c.tables.attention_together = slowdown(c, threads, [&](int thread) {
    RotatingMemory& own = of(thread);
    c.kernels.attention(kLane, shape, own.next(kTokens * shape.columns()),
                        own.next(kTokens * kFeatures), own.next(8 * kTokens));
  });
  c.tables.kernels_together = slowdown(c, threads, [&](int thread) {
    RotatingMemory& own = of(thread);
    constexpr std::int64_t kCount = kTokens * kFeatures;
    c.kernels.add_residual(kLane, kTokens, kFeatures, own.next(kCount), own.next(kCount), nullptr,
                           {}, own.next(kCount));
  });
}

}  // namespace rehearse::exec
