// The names under which a linker sees the core: as they are written.
//
// An exported library brings a file of this name of its own, which puts the name of the model before each of
// them, so that several models can be linked into one program. Every header that declares a function of the core
// includes it first.
#ifndef TW_NAMES_H_
#define TW_NAMES_H_
#endif  // TW_NAMES_H_
