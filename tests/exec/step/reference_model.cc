// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/step/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rehearse::reference {
namespace {

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  Tensor values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
};

Matrix sum(const Matrix& a, const Matrix& b) {
  Matrix out = a;
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] += b.values[i];
  return out;
}

double element(const Tensor& tensor, std::int64_t i) {
  return tensor[static_cast<std::size_t>(i)];
}
double& element(Tensor& tensor, std::int64_t i) {
  return tensor[static_cast<std::size_t>(i)];
}

// nullptr: the model has none.
template <class Map>
auto* bias_of(Map& tensors, const std::string& name) {
  const auto at = tensors.find(name + ".bias");
  return at == tensors.end() ? nullptr : &at->second;
}

// --- y = x W^T + b: x (n, in), W [out, in] ---

Matrix linear(const Matrix& x, const Tensors& weights, const std::string& name) {
  const Tensor& w = weights.at(name + ".weight");
  const Tensor* b = bias_of(weights, name);
  Matrix y(x.rows, static_cast<std::int64_t>(w.size()) / x.cols);
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t o = 0; o < y.cols; ++o) {
      double total = b == nullptr ? 0 : element(*b, o);
      for (std::int64_t i = 0; i < x.cols; ++i) total += x(r, i) * element(w, o * x.cols + i);
      y(r, o) = total;
    }
  }
  return y;
}

// dx = dy W; dW += dy^T x; db += the sum of dy's rows.
Matrix linear_backward(const Matrix& dy, const Matrix& x, const Tensors& weights,
                       const std::string& name, Tensors& gradients) {
  const Tensor& w = weights.at(name + ".weight");
  Tensor& dw = gradients.at(name + ".weight");
  Tensor* db = bias_of(gradients, name);
  Matrix dx(x.rows, x.cols);
  for (std::int64_t r = 0; r < dy.rows; ++r) {
    for (std::int64_t o = 0; o < dy.cols; ++o) {
      for (std::int64_t i = 0; i < x.cols; ++i) {
        dx(r, i) += dy(r, o) * element(w, o * x.cols + i);
        element(dw, o * x.cols + i) += dy(r, o) * x(r, i);
      }
      if (db != nullptr) element(*db, o) += dy(r, o);
    }
  }
  return dx;
}

// --- norms: y = hat w + b, hat = (x - mean) / sqrt(mean of squares + eps) ---
// LayerNorm (Ba et al. 2016, arXiv 1607.06450); RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467)
// takes no mean away and has no b.

struct RowStatistics {
  double mean = 0, rstd = 0;
};
RowStatistics statistics(const Transformer& model, const Matrix& x, std::int64_t row) {
  RowStatistics s;
  const auto h = static_cast<double>(x.cols);
  if (model.norm == NormKind::LayerNorm) {
    for (std::int64_t i = 0; i < x.cols; ++i) s.mean += x(row, i) / h;
  }
  double variance = 0;
  for (std::int64_t i = 0; i < x.cols; ++i) variance += std::pow(x(row, i) - s.mean, 2) / h;
  s.rstd = 1 / std::sqrt(variance + model.norm_epsilon);
  return s;
}

Matrix normalise(const Transformer& model, const Matrix& x, const Tensors& weights,
                 const std::string& name) {
  const Tensor& w = weights.at(name + ".weight");
  const Tensor* b = bias_of(weights, name);
  Matrix y(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const RowStatistics s = statistics(model, x, r);
    for (std::int64_t i = 0; i < x.cols; ++i) {
      y(r, i) = (x(r, i) - s.mean) * s.rstd * element(w, i) + (b == nullptr ? 0 : element(*b, i));
    }
  }
  return y;
}

// With g = dy w: dx = rstd (g - mean(g) - hat mean(g hat)); RMSNorm has no mean(g).
Matrix normalise_backward(const Transformer& model, const Matrix& dy, const Matrix& x,
                          const Tensors& weights, const std::string& name, Tensors& gradients) {
  const Tensor& w = weights.at(name + ".weight");
  Tensor& dw = gradients.at(name + ".weight");
  Tensor* db = bias_of(gradients, name);
  const auto h = static_cast<double>(x.cols);
  Matrix dx(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const RowStatistics s = statistics(model, x, r);
    const auto hat = [&](std::int64_t i) { return (x(r, i) - s.mean) * s.rstd; };
    double mean_g = 0, mean_g_hat = 0;
    for (std::int64_t i = 0; i < x.cols; ++i) {
      const double g = dy(r, i) * element(w, i);
      if (model.norm == NormKind::LayerNorm) mean_g += g / h;
      mean_g_hat += g * hat(i) / h;
      element(dw, i) += dy(r, i) * hat(i);
      if (db != nullptr) element(*db, i) += dy(r, i);
    }
    for (std::int64_t i = 0; i < x.cols; ++i) {
      dx(r, i) = s.rstd * (dy(r, i) * element(w, i) - mean_g - hat(i) * mean_g_hat);
    }
  }
  return dx;
}

// --- rotary positions (Su et al. 2021, arXiv 2104.09864, eq. 34), paired as Hugging Face's Llama:
// dimension i with i + d/2, angle = position theta^(-2i/d). The backward turns back. ---

void rotate(const Transformer& model, std::int64_t sequence, double sign, Matrix& qkv) {
  const std::int64_t d = model.head_dim;
  for (std::int64_t r = 0; r < qkv.rows; ++r) {
    const auto position = static_cast<double>(r % sequence);
    for (std::int64_t head = 0; head < model.heads + model.kv_heads; ++head) {  // q, then k
      for (std::int64_t i = 0; i < d / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(d);
        const double angle = sign * position * std::pow(model.rotary.theta, exponent);
        double& a = qkv(r, head * d + i);
        double& b = qkv(r, head * d + i + d / 2);
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }
}

// --- causal attention (Vaswani et al. 2017, section 3.2.1; grouped queries: Ainslie et al. 2023,
// arXiv 2305.13245): o = softmax(q k^T / sqrt(d)) v, query head j reads key head j / (a / kv) ---

// One head of one sample: where its rows and columns begin in qkv (n, q | k | v).
struct Head {
  std::int64_t row = 0, q = 0, k = 0, v = 0, o = 0;
};

template <class Visit>
void for_each_head(const Transformer& model, const Batch& batch, Visit visit) {
  const std::int64_t d = model.head_dim, group = model.heads / model.kv_heads;
  for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
    for (std::int64_t j = 0; j < model.heads; ++j) {
      visit(Head{.row = sample * batch.sequence,
                 .q = j * d,
                 .k = (model.heads + j / group) * d,
                 .v = (model.heads + model.kv_heads + j / group) * d,
                 .o = j * d});
    }
  }
}

// softmax(q k^T / sqrt(d)), 0 above the diagonal.
Matrix probabilities(const Transformer& model, const Batch& batch, const Matrix& qkv,
                     const Head& head) {
  Matrix p(batch.sequence, batch.sequence);
  const double scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  for (std::int64_t t = 0; t < p.rows; ++t) {
    double total = 0;
    for (std::int64_t s = 0; s <= t; ++s) {
      double product = 0;
      for (std::int64_t i = 0; i < model.head_dim; ++i) {
        product += qkv(head.row + t, head.q + i) * qkv(head.row + s, head.k + i);
      }
      p(t, s) = std::exp(product * scale);
      total += p(t, s);
    }
    for (std::int64_t s = 0; s <= t; ++s) p(t, s) /= total;
  }
  return p;
}

Matrix attend(const Transformer& model, const Batch& batch, const Matrix& qkv) {
  Matrix o(qkv.rows, model.heads * model.head_dim);
  for_each_head(model, batch, [&](const Head& head) {
    const Matrix p = probabilities(model, batch, qkv, head);
    for (std::int64_t t = 0; t < batch.sequence; ++t) {
      for (std::int64_t s = 0; s <= t; ++s) {
        for (std::int64_t i = 0; i < model.head_dim; ++i) {
          o(head.row + t, head.o + i) += p(t, s) * qkv(head.row + s, head.v + i);
        }
      }
    }
  });
  return o;
}

// dv = P^T do; dP = do v^T; dS = P (dP - sum over s of P dP); dq = dS k / sqrt(d),
// dk = dS^T q / sqrt(d).
Matrix attend_backward(const Transformer& model, const Batch& batch, const Matrix& d_o,
                       const Matrix& qkv) {
  Matrix dqkv(qkv.rows, qkv.cols);
  const double scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  for_each_head(model, batch, [&](const Head& head) {
    const Matrix p = probabilities(model, batch, qkv, head);
    for (std::int64_t t = 0; t < batch.sequence; ++t) {
      std::vector<double> dp(static_cast<std::size_t>(t + 1));
      double mean = 0;
      for (std::int64_t s = 0; s <= t; ++s) {
        for (std::int64_t i = 0; i < model.head_dim; ++i) {
          element(dp, s) += d_o(head.row + t, head.o + i) * qkv(head.row + s, head.v + i);
          dqkv(head.row + s, head.v + i) += p(t, s) * d_o(head.row + t, head.o + i);
        }
        mean += p(t, s) * element(dp, s);
      }
      for (std::int64_t s = 0; s <= t; ++s) {
        const double ds = p(t, s) * (element(dp, s) - mean) * scale;
        for (std::int64_t i = 0; i < model.head_dim; ++i) {
          dqkv(head.row + t, head.q + i) += ds * qkv(head.row + s, head.k + i);
          dqkv(head.row + s, head.k + i) += ds * qkv(head.row + t, head.q + i);
        }
      }
    }
  });
  return dqkv;
}

// --- activations: u (n, f) or (n, gate | up) -> g (n, f) ---

// GELU's tanh form (Hendrycks & Gimpel 2016, arXiv 1606.08415): 0.5 x (1 + tanh z).
struct Gelu {
  double value = 0, slope = 0;
};
Gelu gelu(double x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double dz = root * (1 + 3 * 0.044715 * x * x);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * dz};
}

// SwiGLU (Shazeer 2020, arXiv 2002.05202): silu(gate) up, silu(x) = x / (1 + exp(-x)).
Matrix activate(const Transformer& model, const Matrix& u) {
  Matrix g(u.rows, model.ffn_hidden);
  for (std::int64_t r = 0; r < g.rows; ++r) {
    for (std::int64_t i = 0; i < g.cols; ++i) {
      const double x = u(r, i);
      g(r, i) = model.mlp == MlpKind::Plain ? gelu(x).value
                                            : x / (1 + std::exp(-x)) * u(r, model.ffn_hidden + i);
    }
  }
  return g;
}

Matrix activate_backward(const Transformer& model, const Matrix& dg, const Matrix& u) {
  Matrix du(u.rows, u.cols);
  for (std::int64_t r = 0; r < dg.rows; ++r) {
    for (std::int64_t i = 0; i < dg.cols; ++i) {
      const double x = u(r, i);
      if (model.mlp == MlpKind::Plain) {
        du(r, i) = dg(r, i) * gelu(x).slope;
        continue;
      }
      const double sigmoid = 1 / (1 + std::exp(-x)), up = u(r, model.ffn_hidden + i);
      du(r, i) = dg(r, i) * up * sigmoid * (1 + x * (1 - sigmoid));
      du(r, model.ffn_hidden + i) = dg(r, i) * x * sigmoid;
    }
  }
  return du;
}

// --- the model ---

struct Names {
  std::string table, positions, final_norm, head;
};
struct LayerNames {
  std::string norm1, qkv, projection, norm2, up, down;
};
Names names_of(const Transformer& model) {
  Names names = model.model_type == "gpt2"
                    ? Names{"wte", "wpe", "ln_f", "lm_head"}
                    : Names{"model.embed_tokens", "", "model.norm", "lm_head"};
  if (model.tied_embedding) names.head = names.table;
  return names;
}
LayerNames names_of(const Transformer& model, std::int64_t layer) {
  if (model.model_type == "gpt2") {
    const std::string h = "h." + std::to_string(layer);
    return {h + ".ln_1", h + ".attn.c_attn", h + ".attn.c_proj",
            h + ".ln_2", h + ".mlp.c_fc",    h + ".mlp.c_proj"};
  }
  const std::string h = "model.layers." + std::to_string(layer);
  return {h + ".input_layernorm",          h + ".self_attn.qkv_proj", h + ".self_attn.o_proj",
          h + ".post_attention_layernorm", h + ".mlp.gate_up_proj",   h + ".mlp.down_proj"};
}

// What a layer's forward keeps; q and k of qkv are rotated.
struct Layer {
  Matrix x, y1, qkv, o, x1, y2, u, g;
};
struct Forward {
  std::vector<Layer> layers;
  Matrix x, y, logits;  // after the last layer; after the final norm
  double loss = 0;
};

Forward forward(const Transformer& model, const Tensors& weights, const Batch& batch) {
  const Names names = names_of(model);
  const std::int64_t n = batch.samples * batch.sequence, h = model.hidden;
  Forward all;
  all.x = Matrix(n, h);
  const Tensor& table = weights.at(names.table + ".weight");
  for (std::int64_t r = 0; r < n; ++r) {
    const std::int64_t token = batch.inputs[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < h; ++i) {
      all.x(r, i) = element(table, token * h + i);
      if (model.positions == PositionKind::Learned) {
        const Tensor& positions = weights.at(names.positions + ".weight");
        all.x(r, i) += element(positions, r % batch.sequence * h + i);
      }
    }
  }
  for (std::int64_t k = 0; k < model.layers; ++k) {
    const LayerNames of = names_of(model, k);
    Layer layer;
    layer.x = all.x;
    layer.y1 = normalise(model, layer.x, weights, of.norm1);
    layer.qkv = linear(layer.y1, weights, of.qkv);
    if (model.positions == PositionKind::Rope) rotate(model, batch.sequence, +1, layer.qkv);
    layer.o = attend(model, batch, layer.qkv);
    layer.x1 = sum(layer.x, linear(layer.o, weights, of.projection));
    layer.y2 = normalise(model, layer.x1, weights, of.norm2);
    layer.u = linear(layer.y2, weights, of.up);
    layer.g = activate(model, layer.u);
    all.x = sum(layer.x1, linear(layer.g, weights, of.down));
    all.layers.push_back(std::move(layer));
  }
  all.y = normalise(model, all.x, weights, names.final_norm);
  all.logits = linear(all.y, weights, names.head);
  for (std::int64_t r = 0; r < n; ++r) {
    double total = 0;
    for (std::int64_t c = 0; c < all.logits.cols; ++c) total += std::exp(all.logits(r, c));
    const std::int64_t target = batch.targets[static_cast<std::size_t>(r)];
    all.loss += (std::log(total) - all.logits(r, target)) / static_cast<double>(n);
  }
  return all;
}

// (softmax(logits) - one at the target) / n
Matrix loss_backward(const Matrix& logits, const Batch& batch) {
  Matrix d(logits.rows, logits.cols);
  for (std::int64_t r = 0; r < d.rows; ++r) {
    double total = 0;
    for (std::int64_t c = 0; c < d.cols; ++c) total += std::exp(logits(r, c));
    for (std::int64_t c = 0; c < d.cols; ++c) {
      const bool target = c == batch.targets[static_cast<std::size_t>(r)];
      d(r, c) = (std::exp(logits(r, c)) / total - (target ? 1 : 0)) / static_cast<double>(d.rows);
    }
  }
  return d;
}

// dx of the layer's input; its parameters' gradients are added to.
Matrix layer_backward(const Transformer& model, const Tensors& weights, const Batch& batch,
                      std::int64_t number, const Layer& layer, const Matrix& dy,
                      Tensors& gradients) {
  const LayerNames of = names_of(model, number);
  const Matrix dg = linear_backward(dy, layer.g, weights, of.down, gradients);
  const Matrix du = activate_backward(model, dg, layer.u);
  const Matrix dy2 = linear_backward(du, layer.y2, weights, of.up, gradients);
  const Matrix dx1 =
      sum(dy, normalise_backward(model, dy2, layer.x1, weights, of.norm2, gradients));
  const Matrix d_o = linear_backward(dx1, layer.o, weights, of.projection, gradients);
  Matrix dqkv = attend_backward(model, batch, d_o, layer.qkv);
  if (model.positions == PositionKind::Rope) rotate(model, batch.sequence, -1, dqkv);
  const Matrix dy1 = linear_backward(dqkv, layer.y1, weights, of.qkv, gradients);
  return sum(dx1, normalise_backward(model, dy1, layer.x, weights, of.norm1, gradients));
}

}  // namespace

Tensors parameters_of(const Transformer& model) {
  const Names names = names_of(model);
  const std::int64_t h = model.hidden, width = model.heads * model.head_dim;
  const std::int64_t qkv = width + 2 * model.kv_heads * model.head_dim;
  const std::int64_t up = (model.mlp == MlpKind::Gated ? 2 : 1) * model.ffn_hidden;
  Tensors all;
  const auto add = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    all[name + ".weight"].resize(static_cast<std::size_t>(out * in));
    if (bias) all[name + ".bias"].resize(static_cast<std::size_t>(out));
  };
  const bool norm_bias = model.norm == NormKind::LayerNorm && model.norm_bias;
  add(names.table, model.vocabulary, h, false);
  if (model.positions == PositionKind::Learned) add(names.positions, model.max_positions, h, false);
  for (std::int64_t k = 0; k < model.layers; ++k) {
    const LayerNames of = names_of(model, k);
    add(of.norm1, h, 1, norm_bias);
    add(of.qkv, qkv, h, model.qkv_bias);
    add(of.projection, h, width, model.projection_bias);
    add(of.norm2, h, 1, norm_bias);
    add(of.up, up, h, model.mlp_bias);
    add(of.down, h, model.ffn_hidden, model.mlp_bias);
  }
  add(names.final_norm, h, 1, norm_bias);
  add(names.head, model.vocabulary, h, false);
  return all;
}

double loss(const Transformer& model, const Tensors& weights, const Batch& batch) {
  return forward(model, weights, batch).loss;
}

LossAndGradients differentiate(const Transformer& model, const Tensors& weights,
                               const Batch& batch) {
  const Names names = names_of(model);
  const std::int64_t h = model.hidden;
  const Forward all = forward(model, weights, batch);
  LossAndGradients out{.loss = all.loss, .gradients = parameters_of(model)};
  Tensors& gradients = out.gradients;
  const Matrix d_logits = loss_backward(all.logits, batch);
  const Matrix dy = linear_backward(d_logits, all.y, weights, names.head, gradients);
  Matrix dx = normalise_backward(model, dy, all.x, weights, names.final_norm, gradients);
  for (std::int64_t k = model.layers; k-- > 0;) {
    dx = layer_backward(model, weights, batch, k, all.layers[static_cast<std::size_t>(k)], dx,
                        gradients);
  }
  Tensor& d_table = gradients.at(names.table + ".weight");  // a tied head has added its part
  for (std::int64_t r = 0; r < dx.rows; ++r) {
    const std::int64_t token = batch.inputs[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < h; ++i) {
      element(d_table, token * h + i) += dx(r, i);
      if (model.positions == PositionKind::Learned) {
        Tensor& d_positions = gradients.at(names.positions + ".weight");
        element(d_positions, r % batch.sequence * h + i) += dx(r, i);
      }
    }
  }
  return out;
}

double norm(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, values] : tensors) {
    for (const double x : values) squares += x * x;
  }
  return std::sqrt(squares);
}

void adamw(const AdamwOptions& o, const Tensors& gradients, Tensors& weights, AdamwState& state) {
  const auto t = static_cast<double>(++state.steps);
  const double correction1 = 1 - std::pow(o.beta1, t), correction2 = 1 - std::pow(o.beta2, t);
  for (auto& [name, p] : weights) {
    const Tensor& g = gradients.at(name);
    Tensor &m = state.m[name], &v = state.v[name];
    m.resize(g.size());
    v.resize(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      p[i] *= 1 - o.learning_rate * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      p[i] -= o.learning_rate / correction1 * m[i] / (std::sqrt(v[i] / correction2) + o.epsilon);
    }
  }
}

}  // namespace rehearse::reference
