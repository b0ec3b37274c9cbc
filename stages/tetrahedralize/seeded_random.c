/* The random numbers of the mesher, with a seed.

fTetWild shuffles with generators that it seeds from std::random_device and offers no seed of its own. This library
defines the one function of libstdc++ that random_device draws from. Loaded with RTLD_GLOBAL before the mesher, it
comes first when the mesher's symbols are looked up. It is no Python module: seeded_random.py loads it with ctypes. */

#include <stdatomic.h>
#include <stdint.h>

static _Atomic uint64_t state;
static _Atomic uint64_t draws;

void scan2cut_seed(uint64_t seed)
{
    state = seed;
    draws = 0;
}

/* Numbers drawn since the seed was set; 0 after a call of the mesher means that it draws from elsewhere. */
uint64_t scan2cut_draws(void)
{
    return draws;
}

/* unsigned std::random_device::_M_getval(), by splitmix64 (Steele, Lea, Flood 2014). */
unsigned int _ZNSt13random_device9_M_getvalEv(void *self)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = atomic_fetch_add(&state, step) + step;
    (void)self;
    atomic_fetch_add(&draws, 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (unsigned int)((z ^ (z >> 31)) >> 32);
}
