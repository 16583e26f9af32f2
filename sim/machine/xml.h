// SPDX-License-Identifier: Apache-2.0
// The part of XML that NCCL writes its topology in: elements with attributes. Comments and the
// lines <?...?> are passed over. Refused by one line each: text between elements, a document type
// (so no entity is ever expanded), what is not closed, nesting and sizes beyond any machine's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse::sim {

struct XmlElement {
  std::string name;
  std::int32_t line = 0;  // 1-based
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  // The attribute's text; empty where there is none.
  std::string_view attribute(std::string_view key) const;
};

inline constexpr std::int32_t kDeepestXml = 64;
inline constexpr std::int32_t kMostXmlElements = 100'000;

// The document's one element. Errors: "PATH:LINE: what is wrong".
Result<XmlElement> parse_xml(std::string_view text, const std::string& path);

}  // namespace rehearse::sim
