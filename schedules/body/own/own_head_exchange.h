// SPDX-License-Identifier: Apache-2.0
// Attention by exchange of heads (head_share.h), of our executor's layers: an all-to-all brings
// every rank all tokens of its heads, another brings what they give back to the tokens' ranks.
// Between the two, attention is that of one rank, over whole sequences, or of a place in a ring.
//
// What is sent lies by receiver: of each (tokens, its query heads) and behind it (tokens, keys and
// values of the key heads that those read).
#pragma once

#include "schedules/body/head_share.h"
#include "schedules/body/own/own_context.h"

namespace rehearse::own {

enum class Exchanged : bool { Outputs, QueriesAndKeys };

// [B] of an array of all tokens and of the heads that this rank attends with.
std::int64_t bytes_of_heads(const Context& c, Exchanged what);
// (tokens, all heads) -> (tokens of all that exchange, own heads), and back.
void take_heads(BodyBuilder& b, const Context& c, Exchanged what, T own_tokens, T own_heads,
                NodePhase phase);
void give_heads(BodyBuilder& b, const Context& c, Exchanged what, T own_heads, T own_tokens,
                NodePhase phase);

}  // namespace rehearse::own
