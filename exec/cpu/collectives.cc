// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/collectives.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "exec/backend/element.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements summed at a time: stays in the first cache

// What elements of a type are summed in.
template <class T>
using SumOf = std::conditional_t<sizeof(T) == 2, float, T>;

// use(T{}) with the type that is meant.
template <class Use>
void with_type(ElementType type, const Use& use) {
  switch (type) {
    case ElementType::Float32:
      return use(float{});
    case ElementType::Float64:
      return use(double{});
    case ElementType::BFloat16:
      return use(BFloat16{});
    case ElementType::Float16:
      return use(Float16{});
  }
}

template <class T>
struct Members {
  std::span<const Contribution> all;
  const T* in(std::size_t m) const { return static_cast<const T*>(all[m].in); }
  T* out(std::size_t m) const { return static_cast<T*>(all[m].out); }
  std::size_t size() const { return all.size(); }
};

template <class T>
void copy(T* to, const T* from, std::int64_t elements) {
  if (to != from) std::memmove(to, from, static_cast<std::size_t>(elements) * sizeof(T));
}

// Sums (or takes the maximum of) elements [begin, end) over arrays in their order; `array(m)` is
// the m-th.
template <class T, class Array>
void combine_block(std::size_t members, const Array& array, std::int64_t begin, std::int64_t end,
                   bool maximum, T* to) {
  std::copy_n(array(0) + begin, end - begin, to);
  for (std::size_t m = 1; m < members; ++m) {
    const auto* from = array(m) + begin;
    if (maximum) {
      for (std::int64_t i = 0; i < end - begin; ++i) to[i] = std::max<T>(to[i], from[i]);
    } else {
      for (std::int64_t i = 0; i < end - begin; ++i) to[i] += from[i];
    }
  }
}

// Calls use(begin, end, sum) for blocks of [first, last).
template <class T, class Use>
void for_sums(const Members<T>& members, std::int64_t first, std::int64_t last, bool maximum,
              const Use& use) {
  std::array<SumOf<T>, kBlock> sum;
  for (std::int64_t begin = first; begin < last; begin += kBlock) {
    const std::int64_t end = std::min(last, begin + kBlock);
    combine_block(
        members.size(), [&](std::size_t m) { return members.in(m); }, begin, end, maximum,
        sum.data());
    use(begin, end, sum.data());
  }
}

// What member m gets of an all-to-all in unequal parts.
template <class T>
void unequal_parts(const Members<T>& members, std::size_t m) {
  T* to = members.out(m);
  for (std::size_t k = 0; k < members.size(); ++k) {
    const std::int64_t* sent = members.all[k].sends;
    const std::int64_t count = sent[m];
    assert(count == members.all[m].receives[k] && "both ends know the same counts");
    copy(to, members.in(k) + std::accumulate(sent, sent + m, std::int64_t{0}), count);
    to += count;
  }
}

template <class T>
void perform_as(const Exchange& exchange) {
  const Members<T> members{exchange.contributions};
  const std::int64_t elements = exchange.elements;
  const std::int64_t part = elements / static_cast<std::int64_t>(members.size());
  const auto root = static_cast<std::size_t>(exchange.root);
  const std::int64_t pitch = exchange.pitch > 0 ? exchange.pitch : part;
  const auto first_of = [pitch](std::size_t m) { return static_cast<std::int64_t>(m) * pitch; };
  switch (exchange.kind) {
    case OpKind::AllReduce:
      for_sums(members, 0, elements, exchange.maximum,
               [&](std::int64_t begin, std::int64_t end, const SumOf<T>* sum) {
                 for (std::size_t m = 0; m < members.size(); ++m) {
                   std::copy_n(sum, end - begin, members.out(m) + begin);
                 }
               });
      return;
    case OpKind::ReduceScatter:  // part m is summed before member m overwrites anything of it
      for (std::size_t m = 0; m < members.size(); ++m) {
        T* out = members.out(m) == members.in(m) ? members.out(m) + first_of(m) : members.out(m);
        for_sums(members, first_of(m), first_of(m) + part, exchange.maximum,
                 [&](std::int64_t begin, std::int64_t end, const SumOf<T>* sum) {
                   std::copy_n(sum, end - begin, out + begin - first_of(m));
                 });
      }
      return;
    case OpKind::AllGather:
    case OpKind::Unshard:
      for (std::size_t m = 0; m < members.size(); ++m) {
        const T* from =
            members.in(m) == members.out(m) ? members.in(m) + first_of(m) : members.in(m);
        for (std::size_t k = 0; k < members.size(); ++k)
          copy(members.out(k) + first_of(m), from, part);
      }
      return;
    case OpKind::Broadcast:
      for (std::size_t m = 0; m < members.size(); ++m)
        copy(members.out(m), members.in(root), elements);
      return;
    case OpKind::Reduce:
      for_sums(members, 0, elements, exchange.maximum,
               [&](std::int64_t begin, std::int64_t end, const SumOf<T>* sum) {
                 std::copy_n(sum, end - begin, members.out(root) + begin);
               });
      return;
    case OpKind::Gather:
      for (std::size_t m = 0; m < members.size(); ++m) {
        copy(members.out(root) + first_of(m), members.in(m), part);
      }
      return;
    case OpKind::Scatter:
      for (std::size_t m = 0; m < members.size(); ++m) {
        copy(members.out(m), members.in(root) + first_of(m), part);
      }
      return;
    case OpKind::AllToAll:
      for (std::size_t m = 0; m < members.size(); ++m) {
        if (members.all[m].receives != nullptr) {
          unequal_parts(members, m);
          continue;
        }
        for (std::size_t k = 0; k < members.size(); ++k) {
          copy(members.out(m) + first_of(k), members.in(k) + first_of(m), part);
        }
      }
      return;
    case OpKind::Send:
      for (std::size_t m = 0; m < members.size(); ++m) {
        copy(members.out((m + 1) % members.size()), members.in(m), elements);
      }
      return;
    default:
      assert(false && "no collective");
      return;
  }
}

}  // namespace

void perform(const Exchange& exchange) {
  with_type(exchange.type, [&]<class T>(T) { perform_as<T>(exchange); });
}

void combine(ElementType type, std::span<const void* const> arrays, std::int64_t count,
             bool maximum, void* to) {
  with_type(type, [&]<class T>(T) {
    T* out = static_cast<T*>(to);
    std::array<SumOf<T>, kBlock> sum;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t end = std::min(count, begin + kBlock);
      combine_block(
          arrays.size(), [&](std::size_t m) { return static_cast<const T*>(arrays[m]); }, begin,
          end, maximum, sum.data());
      std::copy_n(sum.data(), end - begin, out + begin);
    }
  });
}

}  // namespace rehearse::exec
