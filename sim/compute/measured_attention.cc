// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/measured_attention.h"

#include <algorithm>
#include <cmath>

#include "sim/compute/waves.h"

namespace rehearse::sim {

double MeasuredAttention::busy(std::int64_t heads, std::int64_t sequence) const {
  constexpr std::int64_t kQueries = 128;
  return busy_share(heads * ((sequence + kQueries - 1) / kQueries), sms_);
}

MeasuredAttention::MeasuredAttention(const Calibration& calibration, std::int32_t sms) : sms_(sms) {
  for (const AttentionPoint& point : calibration.attention) {
    if (point.kernel != AttentionKernel::Flash2) continue;  // our executor's word for its own
    const AttentionForm form{point.backward, point.causal, point.part, point.half};
    const std::int64_t heads = point.batch * point.heads;
    Curve& curve = curves_[form][point.head_dim];
    const auto place = std::ranges::lower_bound(curve.at, point.sequence);
    if (place != curve.at.end() && *place == point.sequence) continue;  // twice: the first
    curve.time_us.insert(curve.time_us.begin() + (place - curve.at.begin()),
                         point.time_us * busy(heads, point.sequence) / static_cast<double>(heads));
    curve.at.insert(place, point.sequence);
  }
}

std::optional<CurveTime> MeasuredAttention::time(AttentionForm form,
                                                 const AttentionSize& size) const {
  const auto curves = curves_.find(form);
  if (curves == curves_.end()) return std::nullopt;
  std::vector<std::int64_t> dims;
  for (const auto& [dim, curve] : curves->second) dims.push_back(dim);
  const Bracket at = bracket(dims, size.head_dim);
  const auto read = [&](std::int64_t dim) {
    const Curve& curve = curves->second.at(dim);
    CurveTime time = *read_curve(curve.at, curve.time_us, size.sequence);
    if (size.sequence > curve.at.back()) {  // work grows with the square
      time.seconds *= static_cast<double>(size.sequence) / static_cast<double>(curve.at.back());
    }
    return time;
  };
  CurveTime time = read(at.below);
  if (at.above != at.below) {
    const CurveTime above = read(at.above);
    time.seconds =
        std::exp(std::log(time.seconds) * (1 - at.share) + std::log(above.seconds) * at.share);
    time.level = std::max({time.level, above.level, CostLevel::Interpolated});
  } else if (at.outside) {
    time.seconds *= static_cast<double>(size.head_dim) / static_cast<double>(at.below);
    time.level = CostLevel::Formula;
  }
  const std::int64_t heads = size.samples * size.heads;
  time.seconds *= static_cast<double>(heads) / busy(heads, size.sequence);
  return time;
}

std::optional<CurveTime> MeasuredAttention::time(const Node& node,
                                                 const AttentionSize& size) const {
  AttentionForm form{.backward = node.kind() == NodeKind::AttentionBackward,
                     .causal = node.step <= 0 &&
                               node.slice<0, .part = node.step >= 0, .half = node.step> 0 &&
                               node.slice < 0};
  if (!curves_.contains(form)) form.half = false;
  if (!curves_.contains(form)) form = {.backward = form.backward};
  std::optional<CurveTime> time = this->time(form, size);
  // A block of the ring is half a square, a sequence of slices as their mean more than one.
  if (time) time->seconds *= node.flops / form.flops(size);
  return time;
}

}  // namespace rehearse::sim
