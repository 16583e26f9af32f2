// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/xml.h"

#include <algorithm>
#include <array>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == ':' || c == '.';
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<XmlElement> document() {
    XmlElement root;
    if (!skip_to_element()) return error_;
    if (at_end()) return json_error(path_, line_, "", "has no element: it is no XML");
    if (!element(root, 1)) return error_;
    if (!skip_to_element()) return error_;
    if (!at_end()) return json_error(path_, line_, "", "a second element follows the first");
    return root;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void step(std::size_t characters) {
    const std::size_t end = std::min(at_ + characters, text_.size());
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }
  void skip_spaces() {
    while (!at_end() && is_space(text_[at_])) step(1);
  }
  bool fail(const std::string& what) {
    error_ = json_error(path_, line_, "", what);
    return false;
  }
  bool skip_past(std::string_view end, std::string_view what) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return fail(std::string(what) + " is not closed");
    step(found + end.size() - at_);
    return true;
  }

  // To the next '<' of an element or of an end, over blanks, comments and <?...?>.
  bool skip_to_element() {
    while (true) {
      skip_spaces();
      if (at_end()) return true;
      if (starts("<!--")) {
        if (!skip_past("-->", "a comment")) return false;
      } else if (starts("<?")) {
        if (!skip_past("?>", "<?")) return false;
      } else if (starts("<!")) {
        return fail("a document type, which NCCL does not write");
      } else if (text_[at_] != '<') {
        return fail("text between elements: it is no topology of NCCL");
      } else {
        return true;
      }
    }
  }

  bool name(std::string& out, std::string_view of) {
    const std::size_t begin = at_;
    while (!at_end() && is_name(text_[at_])) step(1);
    out = text_.substr(begin, at_ - begin);
    return !out.empty() || fail("the name of " + std::string(of) + " is missing");
  }

  bool value(std::string& out) {
    const char quote = at_end() ? '\0' : text_[at_];
    if (quote != '"' && quote != '\'') return fail("an attribute's value needs quotes");
    step(1);
    while (!at_end() && text_[at_] != quote) {
      if (text_[at_] == '<') return fail("an attribute's value is not closed");
      if (text_[at_] == '&') {
        if (!entity(out)) return false;
      } else {
        out += text_[at_];
        step(1);
      }
    }
    if (at_end()) return fail("an attribute's value is not closed");
    step(1);
    return true;
  }

  bool entity(std::string& out) {
    struct Entity {
      std::string_view written;
      char means;
    };
    constexpr std::array<Entity, 5> kEntities{
        {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
    for (const Entity& entity : kEntities) {
      if (!starts(entity.written)) continue;
      out += entity.means;
      step(entity.written.size());
      return true;
    }
    return fail("an entity that is not one of XML's five");
  }

  bool attributes(XmlElement& out) {
    while (true) {
      skip_spaces();
      if (at_end()) return fail("<" + out.name + " is not closed");
      if (text_[at_] == '>' || text_[at_] == '/') return true;
      std::string key, text;
      if (!name(key, "an attribute")) return false;
      skip_spaces();
      if (at_end() || text_[at_] != '=') return fail(key + " has no value");
      step(1);
      skip_spaces();
      if (!value(text)) return false;
      if (!out.attribute(key).empty()) return fail(key + " stands twice in <" + out.name + ">");
      out.attributes.emplace_back(std::move(key), std::move(text));
    }
  }

  // REQUIRES: at '<'.
  bool element(XmlElement& out, std::int32_t depth) {
    if (depth > kDeepestXml) return fail("elements within elements, too deep for a machine");
    if (++elements_ > kMostXmlElements) return fail("more elements than a machine has parts");
    out.line = line_;
    step(1);
    if (!name(out.name, "an element") || !attributes(out)) return false;
    if (starts("/>")) {
      step(2);
      return true;
    }
    if (text_[at_] != '>') return fail("<" + out.name + " is not closed");
    step(1);
    while (true) {
      if (!skip_to_element()) return false;
      if (at_end()) return fail("<" + out.name + "> of line " + std::to_string(out.line) +
                                " is not closed");
      if (starts("</")) return end(out.name);
      out.children.emplace_back();
      if (!element(out.children.back(), depth + 1)) return false;
    }
  }

  bool end(const std::string& of) {
    step(2);
    std::string closes;
    if (!name(closes, "what is closed")) return false;
    skip_spaces();
    if (closes != of || at_end() || text_[at_] != '>') {
      return fail("</" + closes + "> where </" + of + "> belongs");
    }
    step(1);
    return true;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::int32_t line_ = 1, elements_ = 0;
  Error error_;
};

}  // namespace

std::string_view XmlElement::attribute(std::string_view key) const {
  for (const auto& [known, text] : attributes) {
    if (known == key) return text;
  }
  return {};
}

Result<XmlElement> parse_xml(std::string_view text, const std::string& path) {
  return Parser(text, path).document();
}

}  // namespace rehearse::sim
