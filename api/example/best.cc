// SPDX-License-Identifier: Apache-2.0
// The fastest layout of a model for several numbers of GPUs, as JSON, a line each. From C++.
#include <iostream>
#include <rehearse.hpp>

int main() {
  for (const char* gpus : {"8", "16"}) {
    const rehearse::Answer answer =
        rehearse::ask({"plan", "llama3-8b", "--gpus", gpus, "--on", "h100", "--json"});
    std::cerr << answer.errors;
    if (answer.code != REHEARSE_DONE) return answer.code;
    std::cout << answer.text;
  }
}
