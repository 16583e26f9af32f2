// SPDX-License-Identifier: Apache-2.0
// What a kernel's forms cost beside its plain one, in the time of one thread of the CPU:
//
//   kernel_forms [PAIRS [NAME]]     (15 pairs; rows whose names hold NAME)
//
// The plain kernel and the form run in turn; printed are the medians and the median of the pairs'
// ratios: what else the machine does meets both of a pair. "work" is how much of the plain kernel's
// the form has to do: a window's share of the keys.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "exec/cpu/kernels/table.h"

namespace {

using namespace rehearse;
using namespace rehearse::exec;
using Floats = std::vector<float>;
using Work = std::function<void()>;

int pairs = 15;
std::string only;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double milliseconds(const Work& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double begin = now();
  work();
  return now() - begin;
}

void compare(const std::string& name, const Work& plain, const Work& form, double work = 1) {
  if (name.find(only) == std::string::npos) return;
  std::vector<double> before, after, ratios;
  for (int k = -2; k < pairs; ++k) {  // the first two warm up
    const double a = milliseconds(plain), b = milliseconds(form);
    if (k < 0) continue;
    before.push_back(a);
    after.push_back(b);
    ratios.push_back(b / a);
  }
  std::printf("| %s | %.3f | %.3f | %.2f | %.2f |\n", name.c_str(), median(before), median(after),
              work, median(ratios));
  std::fflush(stdout);
}

Floats numbers(std::int64_t count) {
  Floats made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>(i * 2654435761U % 2001) * 0.002F - 2.0F;
  return made;
}

const std::pair<ActivationKind, const char*> kKinds[] = {
    {ActivationKind::GeluExact, "gelu"}, {ActivationKind::QuickGelu, "quick_gelu"},
    {ActivationKind::Relu, "relu"},      {ActivationKind::Relu2, "relu squared"},
    {ActivationKind::Silu, "silu"},      {ActivationKind::Tanh, "tanh"}};

void activations(const KernelTable& k) {
  const std::int64_t rows = 256, f = 4096, count = rows * f;
  const Floats u = numbers(2 * count), dg = numbers(count);
  Floats g(dg.size()), du(u.size());
  for (const auto& [kind, name] : kKinds) {
    const auto forward = [&](ActivationKind of) {
      return [&, of] { k.activation(of, count, u.data(), g.data()); };
    };
    const auto backward = [&](ActivationKind of) {
      return [&, of] { k.activation_backward(of, count, dg.data(), u.data(), du.data()); };
    };
    compare(std::string(name) + " for gelu by tanh", forward(ActivationKind::GeluTanh),
            forward(kind));
    compare(std::string(name) + " for gelu by tanh, backward", backward(ActivationKind::GeluTanh),
            backward(kind));
  }
  for (const ActivationKind kind : {ActivationKind::GeluTanh, ActivationKind::GeluExact}) {
    const std::string name = kind == ActivationKind::GeluTanh ? "gate gelu by tanh" : "gate gelu";
    const auto forward = [&](ActivationKind of) {
      return [&, of] { k.gated(of, rows, f, u.data(), g.data()); };
    };
    const auto backward = [&](ActivationKind of) {
      return [&, of] { k.gated_backward(of, rows, f, dg.data(), u.data(), du.data()); };
    };
    compare(name + " for silu", forward(ActivationKind::Silu), forward(kind));
    compare(name + " for silu, backward", backward(ActivationKind::Silu), backward(kind));
  }
}

void positions_and_norms(const KernelTable& k) {
  const std::vector<double> frequencies(64, 0.01);
  const AttentionShape shape{
      .tokens = 512, .sequence = 512, .heads = 16, .kv_heads = 8, .head_dim = 128};
  Floats qkv = numbers(shape.tokens * shape.columns());
  const auto rope = [&](const RotaryShape& rotary) {
    return [&, rotary] { k.rope(shape, rotary, false, qkv.data()); };
  };
  const RotaryShape plain{frequencies.data(), 128, 1, false};
  compare("rope, interleaved", rope(plain), rope({frequencies.data(), 128, 1, true}));
  compare("rope, a half of a head", rope(plain), rope({frequencies.data(), 64, 1, false}), 0.5);

  const std::int64_t rows = 512, heads = 16, width = 128;
  const Floats x = numbers(rows * heads * width), dy = x, weight = numbers(heads * width);
  Floats y(x.size()), dx(x.size()), statistics(static_cast<std::size_t>(rows * heads)),
      sums(statistics.size()), dw(weight.size());
  const auto norm = [&](double offset) {
    return [&, offset] {
      k.rms_norm(rows, heads * width, x.data(), weight.data(), offset, 1e-5, y.data(),
                 statistics.data());
    };
  };
  compare("rms_norm by 1 + weight", norm(0), norm(1));
  const StridedNorm strided{.rows = rows,
                            .groups = heads,
                            .width = width,
                            .stride = heads * width,
                            .total = width,
                            .epsilon = 1e-5,
                            .alone = true};
  compare(
      "norms of heads for norms of as many rows",
      [&] {
        k.rms_norm(rows * heads, width, x.data(), weight.data(), 0, 1e-5, y.data(),
                   statistics.data());
      },
      [&] { k.strided_norm(strided, x.data(), weight.data(), statistics.data(), y.data()); });
  compare(
      "norms of heads for norms of as many rows, backward",
      [&] {
        k.rms_norm_backward(rows * heads, width, dy.data(), x.data(), statistics.data(),
                            weight.data(), 0, nullptr, dx.data(), dw.data());
      },
      [&] {
        k.strided_norm_backward(strided, dy.data(), x.data(), statistics.data(), sums.data(),
                                weight.data(), dx.data(), dw.data());
      });
  const DropoutShape drop = dropout_of(0.1, 1, 2, 3, DropoutSite::MlpOutput);
  const auto add = [&](const DropoutShape& how) {
    return [&, how] {
      k.add_residual(rows, heads * width, x.data(), dy.data(), weight.data(), how, y.data());
    };
  };
  compare("residual that drops", add({}), add(drop));
}

void losses(const KernelTable& k) {
  const std::int64_t rows = 32, columns = 32768;
  Floats logits = numbers(rows * columns), maxima(64), sums(128);
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 7);
  float loss = 0;
  const auto run = [&](float cap) {
    return [&, cap] {
      if (cap > 0) k.softcap(rows * columns, cap, logits.data());
      const VocabularyShape shape{.columns = columns, .valid = columns, .softcap = cap};
      k.cross_entropy(rows, shape, targets.data(), 1, maxima.data(), sums.data(), logits.data(),
                      &loss);  // which leaves their gradient: as good logits as any
    };
  };
  compare("loss over capped logits", run(0), run(30));
  const std::int64_t h = 512;
  const Floats x = numbers(rows * h), weight = numbers(columns * h);
  const auto with_product = [&](float cap) {
    return [&, cap] {
      k.logits(rows, columns, h, columns, x.data(), weight.data(), logits.data());
      run(cap)();
    };
  };
  compare("logits of 512 columns and loss, capped", with_product(0), with_product(30));
}

void attentions(const KernelTable& k) {
  for (const std::int64_t head_dim : {64, 128, 256}) {
    const std::int64_t n = 2048, heads = 2;
    const AttentionShape plain{
        .tokens = n, .sequence = n, .heads = heads, .kv_heads = heads, .head_dim = head_dim};
    const Floats qkv = numbers(n * plain.columns()), d_o = numbers(n * heads * head_dim);
    Floats o(d_o.size()), lse(static_cast<std::size_t>(heads * n)), delta = lse, dqkv(qkv.size());
    k.attention(plain, qkv.data(), o.data(), lse.data());
    const auto one = [&](const std::string& name, const AttentionForm& form, double work = 1) {
      AttentionShape shape = plain;
      shape.form = form;
      const std::string of = "attention, heads of " + std::to_string(head_dim) + ": " + name;
      const auto forward = [&](const AttentionShape& s) {
        return [&] { k.attention(s, qkv.data(), o.data(), lse.data()); };
      };
      const auto backward = [&](const AttentionShape& s) {
        return [&] {
          k.attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                               delta.data());
        };
      };
      compare(of, forward(plain), forward(shape), work);
      compare(of + ", backward", backward(plain), backward(shape), work);
    };
    const Floats sinks(static_cast<std::size_t>(heads), 0.5F);
    // Keys of all queries: n^2 / 2 of the whole, w (n - w / 2) of a window.
    const auto share = [&](double w) {
      const auto all = static_cast<double>(n);
      return w * (all - w / 2) / (all * all / 2);
    };
    one("softcap", {.softcap = 50});
    one("window of 256", {.window = 256}, share(256));
    one("window of 1024", {.window = 1024}, share(1024));
    one("ALiBi", {.alibi_heads = 2});
    one("sinks", {.sinks = sinks.data()});
    one("dropout",
        {.dropout = dropout_of(0.1, 1, 2, 3, DropoutSite::Attention), .dropout_sequence = n});
  }
}

// Values of 128 beside keys of 192, as DeepSeek has them, for heads of 160: equal products.
void latent_attention(const KernelTable& k) {
  const std::int64_t n = 2048, heads = 2;
  AttentionShape plain{
      .tokens = n, .sequence = n, .heads = heads, .kv_heads = heads, .head_dim = 160};
  AttentionShape latent = plain;
  latent.head_dim = 192;
  latent.value_dim = 128;
  const Floats qkv = numbers(n * latent.columns()), d_o = numbers(n * heads * plain.head_dim);
  Floats o(d_o.size()), lse(static_cast<std::size_t>(heads * n)), delta = lse, dqkv(qkv.size());
  const auto forward = [&](const AttentionShape& s) {
    return [&] { k.attention(s, qkv.data(), o.data(), lse.data()); };
  };
  const auto backward = [&](const AttentionShape& s) {
    return [&] {
      k.attention(s, qkv.data(), o.data(), lse.data());
      k.attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                           delta.data());
    };
  };
  compare("attention, keys of 192 and values of 128 for 160", forward(plain), forward(latent));
  compare("attention, keys of 192 and values of 128 for 160, forward and backward", backward(plain),
          backward(latent), (4 * 192 + 3 * 128) / (7 * 160.0));
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) pairs = std::atoi(arguments[1]);
  if (count > 2) only = arguments[2];
  const KernelTable& k = kernels();
  std::printf("| %s | plain, ms | form, ms | work | ratio |\n|---|--:|--:|--:|--:|\n",
              std::string(k.instruction_set).c_str());
  activations(k);
  positions_and_norms(k);
  losses(k);
  attentions(k);
  latent_attention(k);
  return 0;
}
