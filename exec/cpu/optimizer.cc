// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {

double sum_of_squares(std::span<const float> values) {
  return kernels().sum_of_squares(static_cast<std::int64_t>(values.size()), values.data());
}

float clip_factor(double norm, double clip_norm) {
  if (clip_norm <= 0) return 1.0F;
  return static_cast<float>(std::min(1.0, clip_norm / (norm + 1e-6)));
}

void adamw(std::span<float> parameters, std::span<const float> gradients, std::span<float> m,
           std::span<float> v, const TrainOptions& options, double rate, double decay,
           std::int64_t step, float scale) {
  const double t = static_cast<double>(step + 1);
  const auto f = [](double value) { return static_cast<float>(value); };
  // 1 - beta in fp64: in fp32 it would be off by 2e-5 of itself for 0.999.
  const AdamwFactors factors{.scale = scale,
                             .beta1 = f(options.beta1),
                             .rest1 = f(1.0 - options.beta1),
                             .beta2 = f(options.beta2),
                             .rest2 = f(1.0 - options.beta2),
                             .keep = f(1.0 - rate * decay),
                             .size = f(rate / (1.0 - std::pow(options.beta1, t))),
                             .root = f(1.0 / std::sqrt(1.0 - std::pow(options.beta2, t))),
                             .epsilon = f(options.epsilon)};
  kernels().adamw(static_cast<std::int64_t>(parameters.size()), factors, gradients.data(),
                  parameters.data(), m.data(), v.data());
}

void lion(std::span<float> parameters, std::span<const float> gradients, std::span<float> m,
          const TrainOptions& options, double rate, double decay, float scale) {
  const auto f = [](double value) { return static_cast<float>(value); };
  const LionFactors factors{.scale = scale,
                            .beta1 = f(options.beta1),
                            .rest1 = f(1.0 - options.beta1),
                            .beta2 = f(options.beta2),
                            .rest2 = f(1.0 - options.beta2),
                            .keep = f(1.0 - rate * decay),
                            .size = f(rate)};
  kernels().lion(static_cast<std::int64_t>(parameters.size()), factors, gradients.data(),
                 parameters.data(), m.data());
}

void update(UpdateRule rule, std::span<float> parameters, std::span<const float> gradients,
            std::span<float> m, std::span<float> v, const TrainOptions& options, double rate,
            double decay, std::int64_t step, float scale) {
  switch (rule) {
    case UpdateRule::AdamW:
      return adamw(parameters, gradients, m, v, options, rate, decay, step, scale);
    case UpdateRule::Lion:
      return lion(parameters, gradients, m, options, rate, decay, scale);
    case UpdateRule::None:
      break;
  }
  std::abort();  // the reader refuses them
}

double learning_rate(const TrainOptions& options, std::int64_t step) {
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const double span =
      static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - options.warmup_steps) / span);
  const double range = options.learning_rate - options.min_learning_rate;
  if (options.lr_decay == "linear") return options.min_learning_rate + range * (1.0 - done);
  if (options.lr_decay == "cosine") {
    return options.min_learning_rate + range * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }
  return options.learning_rate;
}

}  // namespace rehearse::exec
