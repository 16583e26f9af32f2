#include "exec/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rehearse::exec {

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

float clip_factor(double norm, double clip_norm) {
  if (clip_norm <= 0) return 1.0F;
  return static_cast<float>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

void adamw(std::span<float> parameters, std::span<const float> gradients, std::span<float> m,
           std::span<float> v, const TrainOptions& options, double rate, double decay,
           std::int64_t step, float scale) {
  const double t = static_cast<double>(step + 1);
  const auto b1 = static_cast<float>(options.beta1), b2 = static_cast<float>(options.beta2);
  // 1 - beta in fp64: in fp32 it would be off by 2e-5 of itself for 0.999.
  const auto a1 = static_cast<float>(1.0 - options.beta1), a2 = static_cast<float>(1.0 - options.beta2);
  const auto keep = static_cast<float>(1.0 - rate * decay);
  const auto size = static_cast<float>(rate / (1.0 - std::pow(options.beta1, t)));
  const auto root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, t)));
  const auto epsilon = static_cast<float>(options.epsilon);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i] * scale;
    m[i] = b1 * m[i] + a1 * g;
    v[i] = b2 * v[i] + a2 * g * g;
    parameters[i] = parameters[i] * keep - size * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

double learning_rate(const TrainOptions& options, std::int64_t step) {
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const double span = static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - options.warmup_steps) / span);
  const double range = options.learning_rate - options.min_learning_rate;
  if (options.lr_decay == "linear") return options.min_learning_rate + range * (1.0 - done);
  if (options.lr_decay == "cosine") {
    return options.min_learning_rate + range * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }
  return options.learning_rate;
}

}  // namespace rehearse::exec
