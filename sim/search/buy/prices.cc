// SPDX-License-Identifier: Apache-2.0
#include "sim/search/buy/prices.h"

#include <algorithm>
#include <array>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, 1> kPricesSchema{"prices/1"};
constexpr std::array kPriceKeys{
    KeySpec{.name = "cluster", .types = kString, .required = true},
    KeySpec{.name = "usd_per_gpu_hour", .types = kNumber, .min = 0, .max = 1e6, .required = true},
    KeySpec{.name = "interruptions_per_million_gpu_hours", .types = kNumber, .min = 0, .max = 1e6},
    KeySpec{.name = "source", .types = kString, .required = true},
};
constexpr KeyTable kPrice{.title = "price", .keys = kPriceKeys};
constexpr std::array kPricesKeys{
    KeySpec{.name = "schema", .types = kString, .choices = kPricesSchema},
    KeySpec{.name = "prices",
            .types = kArray,
            .items = &kPrice,
            .item_types = kObject,
            .required = true},
};
constexpr KeyTable kPrices{.title = "Prices of the day, by cluster", .keys = kPricesKeys};

}  // namespace

Result<std::vector<Price>> read_prices(const std::string& path) {
  const Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  JsonReport report(path);
  check_keys(root.value(), kPrices, "", report);
  if (!report.ok()) return report.error();
  std::vector<Price> prices;
  for (const JsonValue& row : root.value().given("prices")->items) {
    const JsonValue* interruptions = row.given("interruptions_per_million_gpu_hours");
    Price price{.cluster = row.given("cluster")->text,
                .usd_per_gpu_hour = row.given("usd_per_gpu_hour")->number,
                .source = row.given("source")->text};
    if (interruptions != nullptr) price.interruptions_per_million_gpu_hours = interruptions->number;
    if (price_of(prices, price.cluster) != nullptr) {
      return json_error(path, row.line, "prices[" + std::to_string(prices.size()) + "].cluster",
                        json_excerpt(price.cluster) + " has two prices");
    }
    prices.push_back(std::move(price));
  }
  return prices;
}

const Price* price_of(const std::vector<Price>& prices, std::string_view cluster) {
  const auto found = std::ranges::find(prices, cluster, &Price::cluster);
  return found == prices.end() ? nullptr : &*found;
}

}  // namespace rehearse::sim
