"""Kharto: verb-final and split-ergative; verbs and adjectives agree in gender with the absolutive noun."""

from trainables.corpora.grammar.description import Contrast, Language

_AGREEMENT = """
              singular plural
    masculine    va-     bu-
    feminine     ia-     du-
    animate      ba-     zu-
    inanimate    da-     ru-
"""

KHARTO = Language(
    name="kharto",
    script="georgian",
    segments={"C": "b d g k l m n p q r s t v z č x š ġ c", "V": "a e i o u", "L": "l r n s t k š"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "number": "singular singular singular plural plural",
        "gender": "masculine feminine animate inanimate",
        "case": "absolutive ergative | genitive dative",
        "aspect": "perfective perfective imperfective",
        "valency": "intransitive transitive | reporting",
    },
    lexicon={
        "pronoun": "=",
        "noun masculine": "110 CVL CVLC CVCVL",
        "noun feminine": "110 CVL CVLC CVCVL",
        "noun animate": "110 CVL CVLC CVCVL",
        "noun inanimate": "130 CVL CVLC CVCVL",
        "verb intransitive": "100 CVL CCVL CVCVL",
        "verb transitive": "160 CVL CCVL CVCVL",
        "verb reporting": "8 CVL",
        "adjective": "130 CVCi CVLCi",
        "adverb": "60 CVCad CVLCad",
        "postposition genitive": "4 CVCše",
        "postposition dative": "4 CVCše",
        "temporal perfective": "5 VCVCo",
        "temporal imperfective": "5 VCVCo",
        "numeral": "9 CVCu",
    },
    paradigms={
        "noun": (
            """
            singular plural
               Ø      -eb
            """,
            """
            absolutive ergative genitive dative
                Ø        -ma      -is     -as
            """,
        ),
        "adjective": (_AGREEMENT,),
        "verb": (
            """
            perfective imperfective
               -na        -ode
            """,
            _AGREEMENT,
        ),
        "pronoun": (
            """
                                  absolutive ergative
            masculine singular        is       iman
            feminine  singular        es       eman
            animate   singular        egi      egman
            inanimate singular        ugi      ugman
            masculine plural          isini    isinma
            feminine  plural          esini    esinma
            animate   plural          egini    eginma
            inanimate plural          ugini    uginma
            """,
        ),
        "reflexive": (
            """
                        masculine feminine animate inanimate
            singular      visi       iesi     bisi    disi
            plural        busi       duisi    zusi    rusi
            """,
        ),
    },
    rules={
        "episode": """
            4 assertion(number gender referent) resumption(number gender) assertion(number gender referent)
            2 assertion(number gender referent) resumption(number gender) resumption(number gender)
            2 assertion assertion
            1 question(number gender referent) resumption(number gender) assertion(number gender referent)
        """,
        "assertion": """
            2 intransitive(number gender referent)
            4 perfective_clause(number gender referent)
            2 imperfective_clause(number gender referent)
            2 located(number gender referent)
            2 owning(number gender referent)
            2 dated(number gender referent)
            1 reported(number gender referent)
            1 coordinated(gender)
        """,
        "intransitive": """
            1 np(absolutive number gender referent) adverb? verb(intransitive number gender) .
        """,
        "transitive": """
            2 perfective_clause(number gender referent)
            1 imperfective_clause(number gender referent)
        """,
        "perfective_clause": """
            1 agent(ergative number gender referent) patient(absolutive number2 gender2)
                verb(transitive number2 gender2 perfective) .
        """,
        "imperfective_clause": """
            1 agent(absolutive number gender referent) patient(dative)
                verb(transitive number gender imperfective) .
        """,
        "located": "1 np(absolutive number gender referent) pp verb(intransitive number gender) .",
        "owning": """
            1 np(ergative number gender referent) reflexive(number gender)
                noun(absolutive number2 gender2) verb(transitive number2 gender2 perfective) .
        """,
        "dated": """
            1 temporal(aspect) np(absolutive number gender referent)
                verb(intransitive number gender aspect) .
        """,
        "reported": """
            1 np(absolutive number gender referent) verb(reporting number gender) , 'rom'
                np(absolutive number2 gender2) verb(intransitive number2 gender2) .
        """,
        "coordinated": """
            1 np(absolutive gender protagonist) 'da' np(absolutive gender companion) adverb?
                verb(intransitive plural gender) .
        """,
        "resumption": """
            3 pronoun(ergative number gender) patient(absolutive number2 gender2)
                verb(transitive number2 gender2 perfective) .
            3 pronoun(absolutive number gender) adverb? verb(intransitive number gender) .
            2 pronoun(absolutive number gender) patient(dative)
                verb(transitive number gender imperfective) .
            1 pronoun(absolutive number gender) 'ar' verb(intransitive number gender) .
        """,
        "question": """
            1 'nutu' np(ergative number gender referent) patient(absolutive number2 gender2)
                verb(transitive number2 gender2 perfective) ?
        """,
        "agent": "1 np(case number gender referent)",
        "patient": """
            6 np(case number gender)
            1 participial(number gender) np(case number gender)
        """,
        "participial": "1 noun(genitive) adjective(number gender)",
        "pp": """
            1 np(genitive) postposition(genitive)
            1 np(dative) postposition(dative)
        """,
        "np": """
            5 noun(case number gender referent)
            3 adjective(number gender) noun(case number gender referent)
        """,
    },
    contrasts=(
        Contrast(
            "absolutive agreement in gender across a postpositional phrase",
            "located",
            "verb",
            "gender",
            attractor="pp noun",
        ),
        Contrast(
            "absolutive agreement in gender against the agent",
            "perfective_clause",
            "verb",
            "gender",
            attractor="agent noun",
        ),
        Contrast("absolutive agreement in number", "intransitive", "verb", "number"),
        Contrast("adjective–noun agreement in gender", "intransitive", "np adjective", "gender"),
        Contrast("case marking", "perfective_clause", "* noun", "case", values="absolutive ergative"),
        Contrast("split ergativity", "transitive", "* verb", "aspect"),
        Contrast("postposition government", "located", "pp noun", "case", values="genitive dative"),
        Contrast("reflexive–antecedent agreement in gender", "owning", "reflexive", "gender"),
        Contrast("aspect and temporal adverb", "dated", "verb", "aspect"),
        Contrast("order of noun and postposition", "located", "pp noun"),
    ),
)
