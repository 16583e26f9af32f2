// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_head_exchange.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;

// What is sent, and what comes.
struct Parcels {
  T sent = kNone, come = kNone;
  std::int64_t bytes = 0, key_heads = 0;  // key heads: 0 where none are in the rows
};
Parcels parcels(BodyBuilder& b, const Context& c, Exchanged what) {
  Parcels made{.bytes = bytes_of_heads(c, what)};
  if (what == Exchanged::QueriesAndKeys) made.key_heads = head_share(c.layout).kv_heads;
  made.sent = b.tensor("heads by rank", H::Workspace, made.bytes);
  made.come = b.tensor("heads of all ranks", H::Workspace, made.bytes);
  return made;
}
void exchange(BodyBuilder& b, const Parcels& of, Axis axis, std::string_view name,
              NodePhase phase) {
  b.collective(K::AllToAll, name, of.bytes, of.sent, of.come, phase).axis = axis;
}

}  // namespace

std::int64_t bytes_of_heads(const Context& c, Exchanged what) {
  const HeadShare share = head_share(c.layout);
  const std::int64_t columns =
      what == Exchanged::Outputs
          ? share.heads * c.s.value_dim
          : share.heads * c.s.head_dim + share.kv_heads * (c.s.head_dim + c.s.value_dim);
  return c.s.element * c.s.tokens * share.ranks * columns;
}

void take_heads(BodyBuilder& b, const Context& c, Exchanged what, T own_tokens, T own_heads,
                NodePhase phase) {
  const bool keys = what == Exchanged::QueriesAndKeys;
  const Parcels of = parcels(b, c, what);
  b.node(K::PackHeads, keys ? "pack heads of q, k, v" : "pack heads of do", {own_tokens}, {of.sent},
         phase)
      .k = of.key_heads;
  exchange(b, of, axis_of_heads(c.plan), keys ? "all_to_all cp q, k, v" : "all_to_all cp do",
           phase);
  b.node(K::JoinTokens, "join tokens", {of.come}, {own_heads}, phase).k = of.key_heads;
}

void give_heads(BodyBuilder& b, const Context& c, Exchanged what, T own_heads, T own_tokens,
                NodePhase phase) {
  const bool keys = what == Exchanged::QueriesAndKeys;
  const Parcels of = parcels(b, c, what);
  b.node(K::SplitTokens, "split tokens", {own_heads}, {of.sent}, phase).k = of.key_heads;
  exchange(b, of, axis_of_heads(c.plan), keys ? "all_to_all cp dq, dk, dv" : "all_to_all cp o",
           phase);
  Node& unpack = b.node(K::UnpackHeads, keys ? "unpack heads of dq, dk, dv" : "unpack heads of o",
                        {of.come}, {own_tokens}, phase);
  unpack.k = of.key_heads;
  unpack.writes.push_back(of.come);  // where it sums gradients of shared key heads
}

}  // namespace rehearse::own
