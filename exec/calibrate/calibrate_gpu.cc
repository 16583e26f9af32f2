// SPDX-License-Identifier: Apache-2.0
// What is particular to a GPU: copies to and from the host, what issuing a kernel costs the host,
// and NCCL's collectives among processes, alone and beside a product.
#include <algorithm>

#include "exec/calibrate/calibrate_parts.h"

namespace rehearse::exec {
namespace {

constexpr Lane kGpuLane = Stopwatch::kMeasured;
constexpr int kCollectives = 8;  // in a row; settled beforehand, because the members must agree

// One collective of the group that this process is in, on `lane`; every member calls it in step.
class NcclCase {
 public:
  NcclCase(Calibration& c, std::size_t group, Lane lane)
      : c_(c),
        place_(c.options.groups->of[group][me()]),
        brought_(place_.instance < 0 ? 0 : ranks().size()),
        lanes_(brought_.size(), lane) {}

  bool here() const { return place_.instance >= 0; }
  std::span<const std::int32_t> ranks() const {
    return c_.options.groups->ranks[static_cast<std::size_t>(place_.instance)];
  }
  // `elements` of the whole array, in place where in is out.
  void issue(OpKind kind, std::int64_t elements, float* in, float* out) {
    brought_[static_cast<std::size_t>(place_.member)] = {in, out};
    c_.options.communicator->collective({.kind = kind,
                                         .elements = elements,
                                         .instance = place_.instance,
                                         .ranks = ranks(),
                                         .contributions = brought_,
                                         .lanes = lanes_},
                                        [this](const Result<>& done) {
                                          if (!done) c_.watch.fail(done.error().message);
                                        });
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(c_.options.communicator->process()); }

  Calibration& c_;
  GroupInstances::Place place_;
  std::vector<Contribution> brought_;
  std::vector<Lane> lanes_;
};

// A layer's product while gradients of the largest group are reduced on another stream.
void measure_beside(Calibration& c, std::size_t group, double reduce_us) {
  const std::int64_t tokens = c.sizes.tokens.back(), features = c.sizes.features.back();
  const std::int64_t floats = c.sizes.exchanged.last;
  if (!c.warm.holds(2 * tokens * features + 512) || !c.written.holds(floats)) return;
  c.warm.restart();
  float *in = c.warm.next(tokens * features), *out = c.warm.next(tokens * features);
  const auto product = [&] {
    perform_gemm(c.kernels, GemmRole::Forward, tokens, features, features, c.memory, c.written, in,
                 out);
  };
  const double alone = c.watch.median_us(product);
  // All of it lies within the first half of the reductions.
  const int calls = std::max(1, static_cast<int>(kCollectives * reduce_us / 2 / alone));
  const Lane other{kGpuLane.rank, Stream::Dp};
  NcclCase exchange(c, group, other);
  bool issued = false;
  const std::vector<double> beside = c.watch.step(1, calls, [&] {
    if (!issued) {
      c.device.begin(other, {1}, {});
      for (int k = 0; k < kCollectives; ++k) {
        float* array = c.written.next(floats);
        exchange.issue(OpKind::AllReduce, floats, array, array);
      }
      c.device.end(other, {1});
      issued = true;
    }
    product();
  });
  c.tables.beside_collective = std::max(0.0, 1 - alone / beside.front());
}

}  // namespace

void measure_copies(Calibration& c) {
  const CalibrateSizes::Range& range = c.sizes.copied;
  for (std::int64_t bytes = range.first; bytes <= range.last; bytes *= range.factor) {
    if (!c.written.holds(bytes / 4)) continue;
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    float* device = c.written.next(bytes / 4);
    const double in =
        c.watch.median_us([&] { c.device.fetch(kGpuLane, device, host.data(), bytes); });
    const double out =
        c.watch.median_us([&] { c.device.offload(kGpuLane, host.data(), device, bytes); });
    c.tables.copies.push_back({false, bytes, in});
    c.tables.copies.push_back({true, bytes, out});
    c.progress("copies", static_cast<double>(bytes) / static_cast<double>(range.last));
  }
}

// Small kernels, issued faster than they could be waited for.
void measure_launches(Calibration& c) {
  constexpr int kLaunches = 1000;
  constexpr std::int64_t kCount = 256;
  float* array = c.written.next(kCount);
  const auto issue = [&] {
    for (int k = 0; k < kLaunches; ++k)
      c.kernels.activation(kGpuLane, ActivationKind::GeluTanh, kCount, array, array);
  };
  std::vector<double> times;
  for (int turn = 0; turn <= c.sizes.repetitions; ++turn) {
    c.device.begin_step();
    c.device.begin(kGpuLane, {0}, {});
    const double begin = now_s();
    issue();
    times.push_back((now_s() - begin) * 1e6 / kLaunches);
    c.device.end(kGpuLane, {0});
    if (const Result<> ended = c.device.end_step(); !ended)
      return c.watch.fail(ended.error().message);
  }
  std::ranges::sort(times);
  c.tables.launch_us = times[times.size() / 2];
}

void measure_nccl(Calibration& c) {
  const GroupInstances& groups = *c.options.groups;
  const CalibrateSizes::Range& range = c.sizes.exchanged;
  double reduce_us = 0;  // of the largest array over the largest group
  for (std::size_t group = 0; group < groups.of.size(); ++group) {
    NcclCase exchange(c, group, kGpuLane);
    if (!exchange.here()) continue;
    const auto ranks = static_cast<std::int32_t>(exchange.ranks().size());
    for (const OpKind kind : {OpKind::AllReduce, OpKind::AllGather, OpKind::ReduceScatter,
                              OpKind::AllToAll, OpKind::Broadcast, OpKind::Reduce}) {
      for (std::int64_t n = range.first; n <= range.last; n *= range.factor) {
        const std::int64_t elements = n / ranks * ranks;
        if (!c.written.holds(elements) || !c.memory.holds(elements)) continue;
        float* out = c.written.next(elements);
        float* in = kind == OpKind::AllToAll ? c.memory.next(elements) : out;
        const auto work = [&] { exchange.issue(kind, elements, in, out); };
        c.watch.step(1, 2, work);  // connects
        const double us = quantile(c.watch.step(c.sizes.repetitions, kCollectives, work), 0.5);
        c.tables.exchanges.push_back({kind, ranks, 4 * elements, us});
        if (kind == OpKind::AllReduce) reduce_us = us;
      }
    }
    c.progress("collectives",
               static_cast<double>(group + 1) / static_cast<double>(groups.of.size()));
  }
  measure_beside(c, groups.of.size() - 1, reduce_us);
}

}  // namespace rehearse::exec
