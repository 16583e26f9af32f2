// SPDX-License-Identifier: Apache-2.0
// A part that stands on other people's libraries and is loaded when it is first asked for, so that
// the command starts in milliseconds on a machine that has none of them, and names the package that
// would bring the part.
//
// A module is the shared object rehearse_NAME.so with one entry, which gives its table:
//
//   struct ThingModule {                            // a header of the room that the thing is in
//     static constexpr const char* kName = "thing";
//     static constexpr int kVersion = 1;            // one more at every change of the table
//     static constexpr const char* kMissing = "no thing here: install rehearse-thing";
//     int version = 0;
//     Result<Thing> (*make)(const ThingOptions&) = nullptr;
//   };
//   REHEARSE_MODULE(thing, ThingModule, .make = make_thing)   // a source of the module alone
//
// Who uses it asks load_module<ThingModule>() and calls through the table; nothing else of the
// module is seen (rehearse_module() in CMakeLists.txt builds it so). What it returns or takes may
// be any type of ours: command and module are built together, and kVersion is there for those that
// are not. A module holds its own copy of our libraries: it shares no variable with the command.
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/result.h"

namespace rehearse {

// rehearse_NAME.so of the first of these folders that has one: the environment's REHEARSE_MODULES,
// which is the only one where it is set; that of this program or library; lib/rehearse beside its
// bin; rehearse beside itself. Empty: none has. Loads nothing.
std::string module_path(std::string_view name);

// The entry's table, not looked into; the module is never unloaded. Errors: `missing` as it stands;
// which library the module lacks; what lies there is no module.
Result<const void*> module_table(std::string_view name, const char* missing);

template <class Module>
bool has_module() {
  return !module_path(Module::kName).empty();
}

// Also remembered where it fails. Errors: those of module_table; a module of another version.
template <class Module>
Result<const Module*> load_module() {
  static const Result<const Module*> loaded = []() -> Result<const Module*> {
    const Result<const void*> table = module_table(Module::kName, Module::kMissing);
    if (!table) return table.error();
    const auto* module = static_cast<const Module*>(table.value());
    if (module->version == Module::kVersion) return module;
    return Error{.message = module_path(Module::kName) + ": of another version of rehearse",
                 .machine = true};
  }();
  return loaded;
}

}  // namespace rehearse

// The entry of a module's own source: its name, the type of its table, its members.
#define REHEARSE_MODULE(name, Module, ...)                                                   \
  extern "C" __attribute__((visibility("default"))) const void* rehearse_##name##_module() { \
    static const Module module{.version = Module::kVersion, __VA_ARGS__};                    \
    return &module;                                                                          \
  }
