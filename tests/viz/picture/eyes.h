// SPDX-License-Identifier: Apache-2.0
// What eyes of each kind see of a colour, and how far two colours are apart for them.
#pragma once

#include <array>
#include <cmath>

#include "viz/picture/colors.h"

namespace rehearse::viz {

struct Lab {
  double l, a, b;
};

// What eyes of a kind see: matrices on linear RGB, severity 1.0, of Machado, Oliveira & Fernandes,
// "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), table 1.
using Matrix = std::array<double, 9>;
inline constexpr std::array<Matrix, 4> kEyes{{{1, 0, 0, 0, 1, 0, 0, 0, 1},
                                       {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216,
                                        -0.003882, -0.048116, 1.051998},  // protan
                                       {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413,
                                        -0.011820, 0.042940, 0.968881},  // deutan
                                       {1.255528, -0.076749, -0.178779, -0.078411, 0.930809,
                                        0.147602, 0.004733, 0.691367, 0.303900}}};  // tritan

inline Lab seen(Color color, const Matrix& m) {
  const std::array<double, 3> rgb{static_cast<double>(to_linear(color.red)),
                                  static_cast<double>(to_linear(color.green)),
                                  static_cast<double>(to_linear(color.blue))};
  std::array<double, 3> v{};
  for (std::size_t i = 0; i < 3; ++i) {
    v[i] = std::fmin(
        1, std::fmax(0, m[3 * i] * rgb[0] + m[3 * i + 1] * rgb[1] + m[3 * i + 2] * rgb[2]));
  }
  const auto f = [](double t) {
    return t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
  };
  const double x = f((0.4124564 * v[0] + 0.3575761 * v[1] + 0.1804375 * v[2]) / 0.95047);
  const double y = f(0.2126729 * v[0] + 0.7151522 * v[1] + 0.0721750 * v[2]);
  const double z = f((0.0193339 * v[0] + 0.1191920 * v[1] + 0.9503041 * v[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

inline double distance(const Lab& a, const Lab& b) {  // CIE 1976
  return std::sqrt(std::pow(a.l - b.l, 2) + std::pow(a.a - b.a, 2) + std::pow(a.b - b.b, 2));
}

}  // namespace rehearse::viz
